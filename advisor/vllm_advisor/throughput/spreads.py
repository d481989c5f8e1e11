"""How far measurements lay from predictions without them, by benchmarks/fit_speed.py. Do not edit.

(0 rates, 1 time to first token, 2 time per output token; kind of load) → (factor either way, campaigns behind it).
"""

from __future__ import annotations


SPREADS = {
    (0, ""): (2.51, 95),
    (0, "burst"): (2.23, 42),
    (0, "burst V0"): (3.35, 4),
    (0, "burst prompts"): (1.79, 13),
    (0, "queue"): (2.1, 5),
    (0, "queue V0"): (2.38, 6),
    (0, "queue prompts"): (1.61, 2),
    (0, "rate"): (1.29, 32),
    (0, "rate V0"): (2.29, 3),
    (0, "rate prompts"): (1.66, 1),
    (0, "steady"): (1.95, 23),
    (0, "steady V0"): (1.68, 2),
    (0, "steady prompts"): (4.2, 7),
    (1, ""): (4.12, 109),
    (1, "burst"): (4.26, 22),
    (1, "burst prompts"): (1.88, 14),
    (1, "queue"): (11.8, 10),
    (1, "queue V0"): (2.86, 6),
    (1, "queue prompts"): (91.9, 14),
    (1, "rate"): (3.38, 32),
    (1, "rate V0"): (6.11, 3),
    (1, "rate prompts"): (1.23, 1),
    (1, "steady"): (2.99, 40),
    (1, "steady V0"): (3.79, 1),
    (1, "steady prompts"): (5.08, 24),
    (2, ""): (2.7, 102),
    (2, "burst"): (3.2, 22),
    (2, "burst prompts"): (1.87, 13),
    (2, "queue"): (1.41, 7),
    (2, "queue V0"): (1.47, 6),
    (2, "queue prompts"): (1.7, 13),
    (2, "rate"): (3.88, 32),
    (2, "rate V0"): (5.44, 3),
    (2, "rate prompts"): (12.6, 1),
    (2, "steady"): (1.68, 37),
    (2, "steady V0"): (1.81, 1),
    (2, "steady prompts"): (2.7, 24),
}

"""What is believed of each parameter before any measurement: a value, how sure it is, bounds, unit and meaning.

`benchmarks/fit_speed.py` starts here and writes `fitted.py`. A `sureness` of 0 holds the value: an estimate that the
public measurements say too little about. Otherwise it is the standard deviation of the logarithm.
"""

from __future__ import annotations

from typing import NamedTuple


class Prior(NamedTuple):
    """One parameter before the fit."""

    name: str
    value: float
    sureness: float
    low: float
    high: float
    unit: str
    meaning: str


_PEAK, _BANDWIDTH, _TIME = "of peak", "of bandwidth", "us"
_LOOSE, _FAIR, _TIGHT, _HELD = 0.4, 0.25, 0.15, 0.0

TABLE: tuple[Prior, ...] = tuple(Prior(*row) for row in (
    # name, value, sureness, low, high, unit, meaning
    ("weights_share",      0.75,   _TIGHT, 0.3,  0.95,  _BANDWIDTH,   "weights are read at"),
    ("kv_share",           0.60,   _FAIR,  0.2,  0.95,  _BANDWIDTH,   "the KV cache is read at"),
    ("dense_share",        0.55,   _FAIR,  0.1,  0.95,  _PEAK,        "linear layers in 16 bits compute at"),
    ("eight_share",        0.75,   _FAIR,  0.1,  1.0,   "of dense",   "is left in 8 bits, of the 8-bit peak"),
    ("four_share",         0.50,   _FAIR,  0.1,  1.0,   "of dense",   "is left in 4 bits, of the 4-bit peak"),
    ("weight_only_share",  0.70,   _FAIR,  0.2,  1.0,   "of dense",   "is left where they are unpacked on the way"),
    ("weight_only_read",   0.85,   _HELD,  0.3,  1.0,   "of weights", "packed weights are read at"),
    ("emulated_share",     0.30,   _HELD,  0.05, 1.0,   "of dense",   "is left where they are unpacked first"),
    ("expert_share",       0.60,   _LOOSE, 0.1,  1.0,   "of dense",   "wide experts compute at"),
    ("narrow_width",       250.0,  _FAIR,  50.0, 3000., "columns",    "of an expert's slice that halve it"),
    ("expert_half",        24.0,   _HELD,  1.0,  400.0, "tokens",     "more does an expert's product cost"),
    ("attention_share",    0.45,   _LOOSE, 0.05, 0.95,  _PEAK,        "attention of prompts computes at"),
    ("latent_share",       0.35,   _HELD,  0.05, 0.95,  _PEAK,        "attention of MLA computes at in decode"),
    ("overlap",            2.5,    _FAIR,  1.0,  10.0,  "power",      "of the mean that joins memory and compute"),
    ("layer_us",           15.0,   _LOOSE, 2.0,  80.0,  _TIME,        "a layer's kernels start and end, in a graph"),
    ("routed_layer_us",    35.0,   _LOOSE, 2.0,  150.0, _TIME,        "routing adds to an expert layer"),
    ("recurrent_layer_us", 23.0,   _HELD,  2.0,  100.0, _TIME,        "linear attention adds to a layer"),
    ("quantize_us",        3.0,    _HELD,  0.5,  30.0,  _TIME,        "activations to 8 bits add to a layer"),
    ("quantize_four_us",   6.0,    _HELD,  0.5,  30.0,  _TIME,        "activations to 4 bits add to a layer"),
    ("eager_layer_us",     120.0,  _LOOSE, 20.,  500.0, _TIME,        "launching a layer's kernels from Python takes"),
    ("prefill_layer_us",   30.0,   _HELD,  1.0,  200.0, _TIME,        "a layer adds in a step with prompts"),
    ("step_us",            1200.0, _LOOSE, 100., 8000., _TIME,        "the host takes for a step"),
    ("request_us",         8.5,    _HELD,  0.5,  100.0, _TIME,        "and for each request in it"),
    ("v0_factor",          4.0,    _LOOSE, 1.0,  10.0,  "times",      "more does V0's host take"),
    ("async_left",         0.45,   _LOOSE, 0.05, 1.0,   "of step",    "is left where scheduling overlaps"),
    ("stream_us",          80.0,   _LOOSE, 5.0,  300.0, _TIME,        "sending a token takes, beside the device"),
    ("tokenize_us",        3.4,    _HELD,  0.2,  20.0,  _TIME,        "a prompt's token takes beforehand"),
    ("frontend_ms",        4.0,    _LOOSE, 0.2,  30.0,  "ms",         "each new request takes from all"),
    ("first_token_ms",     20.0,   _LOOSE, 2.0,  100.0, "ms",         "before a request's first step"),
    ("fast_hop_us",        10.0,   _LOOSE, 2.0,  50.0,  _TIME,        "a collective of 8 takes over NVLink or xGMI"),
    ("slow_hop_us",        25.0,   _LOOSE, 5.0,  150.0, _TIME,        "and over PCIe or the host"),
    ("link_share",         0.80,   _HELD,  0.2,  1.0,   "of link",    "large collectives move at"),
    ("grouped",            2.00,   _FAIR,  1.0,  3.0,   "times",      "longer do prompts take in DeepGEMM's experts"),
    ("ep_uneven",          1.30,   _TIGHT, 1.0,  2.0,   "times",      "the mean has the fullest EP rank"),
    ("ep_luck",            0.50,   _HELD,  0.05, 2.0,   "",           "of a Poisson maximum is seen"),
    ("dp_wait",            0.25,   _HELD,  0.01, 1.0,   "of prefill", "of each other DP rank is waited for"),
    ("routing_skew",       0.90,   _HELD,  0.1,  1.0,   "of tokens",  "count as routed independently"),
    ("bunching",           3.0,    _LOOSE, 0.3,  30.0,  "times",      "longer than at random, prompts queue"),
    ("spread_tail",        1.0,    _LOOSE, 0.05, 4.0,   "times",      "the mean length, the last ones decode"),
    ("spread_skew",        0.70,   _HELD,  0.02, 3.0,   "",           "more do stalls weigh where lengths differ"),
    ("accepted",           0.75,   _HELD,  0.3,  0.95,  "chance",     "that a guessed token is right"),
    ("ampere",             1.0,    _FAIR,  0.4,  2.0,   "of Hopper",  "is reached of the device's peaks on sm80"),
    ("blackwell",          1.0,    _FAIR,  0.4,  2.0,   "of Hopper",  "on sm100 and sm103"),
    ("geforce",            1.0,    _FAIR,  0.4,  2.0,   "of Hopper",  "on GeForce, RTX and Ada"),
    ("cdna3",              0.7,    _LOOSE, 0.2,  2.0,   "of Hopper",  "on MI200 and MI300"),
    ("cdna4",              0.7,    _LOOSE, 0.2,  2.0,   "of Hopper",  "on MI350"),
    ("radeon",             0.6,    _LOOSE, 0.2,  2.0,   "of Hopper",  "on Radeon and Strix Halo"),
    ("amd_overhead",       1.5,    _LOOSE, 0.5,  5.0,   "times",      "the fixed costs of NVIDIA's layers, on AMD"),
))  # fmt: skip

"""What was measured, and what is kept of it: the values that pass between the tuner, the store and the command line.

A profile is a plan with its measurement, the machine and software that it was measured on, and where it comes from.
NamedTuples, because `advisor recommend` reads them at its start. Times are seconds since 1970, UTC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.plan import Plan
    from vllm_advisor.units import Interval
    from vllm_advisor.workload import Workload

Scalar: TypeAlias = str | int | float | bool | None
Settings: TypeAlias = tuple[tuple[str, Scalar], ...]
Readings: TypeAlias = tuple[tuple[str, str | Unknown], ...]


class TrialState(StrEnum):
    """WAITING → RUNNING → one of the four ends. INFEASIBLE: it cannot run; FAILED: it should have; ABORTED: stopped."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def is_final(self) -> bool:
        """Whether a trial stays in it."""
        return self not in (TrialState.WAITING, TrialState.RUNNING)


class Origin(StrEnum):
    """Where a profile comes from. Only a measured one can be a truth, and only where its fingerprint matches."""

    MEASURED = "measured"
    IMPORTED = "imported"
    SHIPPED = "shipped"


class Fingerprint(NamedTuple):
    """What a measurement depends on, as named readings: `strict` all of it, `loose` what still predicts."""

    strict: Readings
    loose: Readings

    @property
    def unknown(self) -> tuple[str, ...]:
        """Strict readings that could not be taken: with any of them, nothing matches strictly."""
        return tuple(name for name, value in self.strict if isinstance(value, Unknown))

    def reading(self, name: str) -> str | Unknown:
        """One strict reading, Unknown where it was not taken."""
        return dict(self.strict).get(name, Unknown("not recorded"))

    def same(self, other: Fingerprint) -> bool:
        """Whether nothing that a measurement depends on differs; two unknowns are no match."""
        return not self.unknown and sorted(self.strict) == sorted(other.strict)

    def like(self, other: Fingerprint) -> bool:
        """Whether one still predicts the other."""
        known = not any(isinstance(value, Unknown) for _, value in self.loose)
        return known and sorted(self.loose) == sorted(other.loose)


class Measurement(NamedTuple):
    """Figures by name, each its middle and what its repeats leave open, at one load.

    Names: output_tok_s, total_tok_s, request_s (whole deployment), ttft_ms, tpot_ms, itl_ms, e2el_ms (means of one
    request), with `p50_`, `p90_`, `p99_` in front for percentiles, goodput_s, median_us (a kernel).
    `workload` is None for a kernel. `seconds` of measuring, warm-up left out; `tool` is what measured.
    """

    figures: tuple[tuple[str, Interval], ...]
    workload: Workload | None = None
    repeats: int = 1
    seconds: float = 0.0
    tool: str = ""
    at: float = 0.0

    def figure(self, name: str) -> Interval | None:
        """One figure, None where it was not taken."""
        return dict(self.figures).get(name)


class QualityResult(NamedTuple):
    """One check of accuracy against the reference: `limit` is the worst value that passes."""

    check: str
    value: Interval
    limit: float
    passed: bool
    note: str = ""
    at: float = 0.0


class Provenance(NamedTuple):
    """Where a profile comes from: `by` names tool and version, `trials` those of this store behind it.

    `source` is a file or a public address; `validated_at` is when an imported one was measured here, 0: never.
    """

    origin: Origin
    by: str = ""
    at: float = 0.0
    node: str = ""
    source: str = ""
    note: str = ""
    trials: tuple[int, ...] = ()
    validated_at: float = 0.0


class Profile(NamedTuple):
    """One plan with what was measured of it. `model` is what was asked for, `plan.checkpoint` what is loaded.

    `flags` were given to vLLM beside the plan, which has no field for them (True: a switch).

    `id` is given by the store from the content; "" before.
    """

    fingerprint: Fingerprint
    plan: Plan
    measurement: Measurement
    quality: tuple[QualityResult, ...] = ()
    provenance: Provenance = Provenance(Origin.MEASURED)
    model: str = ""
    id: str = ""
    flags: Settings = ()

    @property
    def is_truth(self) -> bool:
        """Whether its figures were measured on this store's machines; elsewhere it is a prior."""
        return self.provenance.origin is Origin.MEASURED or self.provenance.validated_at > 0

    @property
    def accurate(self) -> bool:
        """Whether no check of accuracy failed."""
        return all(check.passed for check in self.quality)


class Trial(NamedTuple):
    """One attempt of a search. `study` groups the trials of one search, so that it can be resumed.

    A trial of a server has a `plan`, one of a kernel its `settings`. `owner` is who runs it (`store.owner.me`).
    """

    study: str
    kind: str
    plan: Plan | None = None
    settings: Settings = ()
    node: str = ""
    state: TrialState = TrialState.WAITING
    reason: str = ""
    owner: str = ""
    created: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    measurement: Measurement | None = None
    quality: tuple[QualityResult, ...] = ()
    fingerprint: Fingerprint | None = None
    id: int = 0


class KernelKey(NamedTuple):
    """What a tuned launch depends on; a change of the last four makes the old winner the first candidate."""

    kernel: str
    bucket: str
    arch: str
    source_hash: str
    device: str
    driver: str
    triton: str
    runtime: str


class KernelConfig(NamedTuple):
    """A launch that was timed against the default: `kept` says that it won beyond noise."""

    key: KernelKey
    settings: Settings
    median_us: float
    default_us: float
    kept: bool
    at: float = 0.0


class Calibration(NamedTuple):
    """Values found by running real prompts through a checkpoint: `kind` is kv_scales, experts or error.

    `revision` is the checkpoint's; `values` by tensor or layer name; `summary` in words.
    """

    kind: str
    model: str
    revision: str
    values: tuple[tuple[str, float], ...]
    summary: str = ""
    at: float = 0.0


class Event(NamedTuple):
    """One line of what the tuner did and why."""

    kind: str
    message: str
    node: str = ""
    details: Settings = ()
    at: float = 0.0
    id: int = 0


class Lease(NamedTuple):
    """Who tunes on a node, until when."""

    node: str
    owner: str
    expires: float

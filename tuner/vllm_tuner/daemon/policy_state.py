"""The values of the policy: its state, what it is told at a tick, and what it orders. Plans are named by profile id."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from vllm_tuner.daemon.drift_reason import Kind, Part
from vllm_tuner.daemon.permit import GRANTED, Permit


if TYPE_CHECKING:
    from vllm_advisor.profile import Settings
    from vllm_tuner.daemon.drift_reason import Reason

_VERSION = 1
REFUSED_KEPT = 16


class Mode(StrEnum):
    """How much may be done unasked: report; tune on idle devices and store; restart the managed unit as well."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ADOPT = "adopt"


class Phase(StrEnum):
    """Where the policy stands; drawn in `policy`."""

    WATCHING = "watching"
    DUE = "due"
    TUNING = "tuning"
    CANDIDATE = "candidate"
    SWITCHING = "switching"
    CANARY = "canary"
    ROLLING_BACK = "rolling back"


class State(NamedTuple):
    """All that must outlive the process.

    `incumbent` is proven ("" is the command that the unit came with); `candidate` won its gate; `previous` ran before,
    None: nothing did. `answering` are the (kind, key) of the reasons that the attempt is for, `handled` those answered
    and still standing, `told` those notified. `refused`: candidates that were rolled back. `tries`, `failures`,
    `phase_s`: of this phase or reason.
    """

    phase: Phase = Phase.WATCHING
    incumbent: str = ""
    candidate: str = ""
    previous: str | None = None
    attempt: int = 0
    answering: tuple[tuple[Kind, str], ...] = ()
    handled: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    waiting: str = ""
    aborting: str = ""
    asked: bool = False
    tries: int = 0
    failures: int = 0
    interruptions: int = 0
    phase_s: float = 0.0


class WorkState(StrEnum):
    """What is known of a tuning run. NONE, while one should run, means that it was lost."""

    NONE = "none"
    RUNNING = "running"
    WON = "won"
    KEPT = "kept"
    FAILED = "failed"
    ABORTED = "aborted"


class Work(NamedTuple):
    """The tuning run of this node: of which attempt, and how it ended. `candidate` is the profile that won its gate."""

    state: WorkState = WorkState.NONE
    attempt: int = 0
    candidate: str = ""
    says: str = ""


class Health(StrEnum):
    """What the managed unit does. UNMANAGED: there is none, and nothing is ever restarted."""

    UNMANAGED = "unmanaged"
    UNKNOWN = "unknown"
    DOWN = "down"
    STARTING = "starting"
    HEALTHY = "healthy"


class Unit(NamedTuple):
    """The managed unit and the profile that it was started with, "" for the command that it came with."""

    health: Health = Health.UNMANAGED
    profile: str = ""


class Verdict(StrEnum):
    """Of a canary: the candidate on live traffic against what the incumbent did before."""

    NONE = "none"
    RUNNING = "running"
    PASSED = "passed"
    WORSE = "worse"


class Canary(NamedTuple):
    """The comparison of an attempt, with its numbers in words."""

    verdict: Verdict = Verdict.NONE
    attempt: int = 0
    says: str = ""


class Ask(StrEnum):
    """What an operator asked for, by `tuner adopt` and `tuner rollback`; given until it is taken up or refused."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    ROLLBACK = "rollback"


class Timing(NamedTuple):
    """Limits of patience, in seconds and counts; all ours. A large model takes half an hour to load."""

    start_s: float = 1800.0
    canary_s: float = 3600.0
    switches: int = 2
    failures: int = 5
    interruptions: int = 3
    retry_s: float = 15.0
    longest_retry_s: float = 600.0


class Inputs(NamedTuple):
    """One tick. `at`: UTC; `elapsed_s`: since the tick before, by a clock that is never set; `reasons` stand now."""

    at: float
    elapsed_s: float
    mode: Mode = Mode.ADVISE
    reasons: tuple[Reason, ...] = ()
    leased: bool = True
    window: Permit = GRANTED
    idle: Permit = GRANTED
    allowance: Permit = GRANTED
    guard: Permit = GRANTED
    work: Work = Work()
    unit: Unit = Unit()
    canary: Canary = Canary()
    ask: Ask = Ask.NOTHING
    stopping: bool = False
    timing: Timing = Timing()


class Tune(NamedTuple):
    """Start a tuning run: these parts, for these reasons. The run reports under `attempt`."""

    attempt: int
    parts: tuple[Part, ...]
    reasons: tuple[Reason, ...]


class Abort(NamedTuple):
    """Stop the tuning run of an attempt, and all that it started. What was measured stays."""

    attempt: int
    why: str


class StoreCandidate(NamedTuple):
    """Keep a profile as the one that may be adopted."""

    profile: str
    attempt: int


class Restart(NamedTuple):
    """Start the managed unit anew with the candidate."""

    profile: str
    attempt: int


class Compare(NamedTuple):
    """Watch the candidate on live traffic against what the incumbent did. Asked again after a crash."""

    candidate: str
    incumbent: str
    attempt: int


class Adopt(NamedTuple):
    """A profile is the incumbent now, `previous` the way back; what is watched is compared with it."""

    profile: str
    previous: str | None


class Rollback(NamedTuple):
    """Start the managed unit anew with a profile that is proven."""

    profile: str
    why: str


class Settle(NamedTuple):
    """Reasons of these kinds were answered (`Drift.settle`)."""

    kinds: tuple[Kind, ...]


class BackOff(NamedTuple):
    """An attempt failed: wait before the next (`allowance.failed`)."""

    why: str


class Recover(NamedTuple):
    """An attempt ended well: no wait is left from earlier failures (`allowance.succeeded`)."""


class Notify(NamedTuple):
    """Tell people, once. `kind`: drift, candidate, adopted, rolled back, gave up, refused."""

    kind: str
    text: str


class Record(NamedTuple):
    """One event for the store."""

    kind: str
    text: str
    details: Settings = ()


Action: TypeAlias = (
    Tune | Abort | StoreCandidate | Restart | Compare | Adopt | Rollback | Settle | BackOff | Recover | Notify | Record
)


def dumps(state: State) -> str:
    """The state as a JSON text."""
    return json.dumps({"version": _VERSION, **state._asdict()}, separators=(",", ":"))


def loads(text: str) -> State:
    """From that text. Raises ValueError for anything else."""
    try:
        plain: dict[str, Any] = json.loads(text)
        if plain.pop("version") != _VERSION:
            raise ValueError("written by another version")
        return _checked(State(**plain))
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not the state of a policy: {error!r}") from None


def _checked(raw: State) -> State:
    """Fields in their types: JSON has no tuples and no enumerations."""
    words = ("incumbent", "candidate", "waiting", "aborting")
    counts = ("attempt", "tries", "failures", "interruptions")
    texts = [getattr(raw, name) for name in words] + [raw.previous or ""]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name is no text")
    if not all(isinstance(getattr(raw, name), int) and getattr(raw, name) >= 0 for name in counts):
        raise ValueError("a count is no number")
    return raw._replace(
        phase=Phase(raw.phase),
        answering=tuple((Kind(kind), str(key)) for kind, key in raw.answering),
        asked=bool(raw.asked),
        phase_s=float(raw.phase_s),
        handled=tuple(map(str, raw.handled)),
        told=tuple(map(str, raw.told)),
        refused=tuple(map(str, raw.refused)),
    )

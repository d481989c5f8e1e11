"""What drift is told of and what it answers: sightings of a deployment in, standing reasons to tune again out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.profile import Fingerprint, Profile
    from vllm_advisor.units import Interval
    from vllm_advisor.workload import Sla, Workload
    from vllm_tuner.daemon.drift_sample import Sample


class Part(StrEnum):
    """What a reason asks for: the kernels' stored winners timed again, or the server's settings searched again."""

    KERNELS = "kernels"
    SERVER = "server"


class Kind(StrEnum):
    """Why a plan may no longer be the best one. At most one reason of a kind stands at a time."""

    FINGERPRINT = "fingerprint"
    WORKLOAD = "workload"
    SLA = "sla"
    PREEMPTIONS = "preemptions"
    QUEUE = "queue"
    KV_USAGE = "kv usage"
    REJECTIONS = "rejections"
    SPEED = "speed"
    AGE = "age"
    PRIOR = "prior"


class Evidence(NamedTuple):
    """One figure or reading as it was and as it is; `unit` in words, "" for a reading without one."""

    name: str
    then: str | float
    now: str | float
    unit: str = ""


class Reason(NamedTuple):
    """One standing reason. `key` is the same as long as it is the same reason: one key leads to one re-tune.

    `says` is one line with the numbers; `since` is when it was first seen, UTC seconds.
    """

    kind: Kind
    key: str
    says: str
    parts: tuple[Part, ...]
    evidence: tuple[Evidence, ...] = ()
    since: float = 0.0


class Reference(NamedTuple):
    """What the plan that runs was tuned on and for; whatever is None is not compared.

    `tpot_ms` is the profile's own measurement at the load `workload`; `at` is when it was taken. `sla`: limits that
    count instead of the workload's.
    """

    profile: str = ""
    fingerprint: Fingerprint | None = None
    workload: Workload | None = None
    tpot_ms: Interval | None = None
    at: float = 0.0
    sla: Sla | None = None

    @property
    def limits(self) -> Sla | None:
        """Those of the service."""
        return self.sla or (self.workload.sla if self.workload else None)

    @classmethod
    def of(cls, profile: Profile) -> Reference:
        """That of a stored profile."""
        measured = profile.measurement
        return cls(profile.id, profile.fingerprint, measured.workload, measured.figure("tpot_ms"), measured.at)


class Prior(NamedTuple):
    """News that promises more than what runs: `gain` 0.05 is 5 % by its own figures; `source` says where from."""

    id: str
    gain: float
    source: str


class Sighting(NamedTuple):
    """One tick. `at`: UTC; `elapsed_s`: since the sighting before, by a clock that is never set.

    `sample` Unknown: /metrics could not be had. `fingerprint` None: not read at this tick, which keeps the last one.
    `offset_s`: local time minus UTC, because load follows people's days.
    """

    at: float
    elapsed_s: float
    sample: Sample | Unknown = Unknown("not asked")
    fingerprint: Fingerprint | None = None
    prior: Prior | None = None
    offset_s: float = 0.0


class DriftLimits(NamedTuple):
    """Thresholds, all ours: what each is worth was seen in simulated months (`simulate`), none is a measurement.

    `block_s` and `least_requests`: how much traffic one comparison of workloads needs. `warm_up_s`: observed before
    anything is judged whose time of day was never seen; `learn_s`: observed before what is usual is fixed.
    `hold_s`: trouble of a service must add up to this much; `slower`: of a token, against the profile.
    """

    block_s: float = 3 * 3600.0
    least_requests: float = 50.0
    warm_up_s: float = 24 * 3600.0
    learn_s: float = 28 * 86400.0
    hold_s: float = 2 * 3600.0
    late_share: float = 0.05
    preempted_share: float = 0.01
    rejected_share: float = 0.001
    queued_share: float = 0.2
    kv_usage: float = 0.9
    slower: float = 1.25
    age_s: float = 90 * 86400.0
    prior_gain: float = 0.05
    sightings: int = 3

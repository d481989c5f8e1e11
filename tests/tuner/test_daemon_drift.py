"""Why a plan no longer fits: /metrics as samples, and each reason with its evidence, its patience and its end."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Fingerprint, Measurement, Profile
from vllm_advisor.units import Interval
from vllm_advisor.vllm.metrics import Metrics, parse
from vllm_advisor.workload import Sla, Workload
from vllm_tuner.daemon.drift import Drift, DriftLimits, Evidence, Kind, Part, Prior, Reference, Sighting
from vllm_tuner.daemon.drift_mix import Mix
from vllm_tuner.daemon.drift_sample import OCTAVES, Lengths, Sample, Times, distance, sample
from vllm_tuner.daemon.drift_usual import Usual, slot_of
from vllm_tuner.daemon.simulate import DAY, HOUR, MONDAY, Deployment, Scene


def lengths(*values):
    """Requests of these lengths."""
    counts = [0.0] * OCTAVES
    for value in values:
        counts[int(math.log2(value))] += 1
    return Lengths(tuple(counts), float(sum(values)))


def interval(seconds=60.0, prompts=(1000,) * 5, outputs=(300,) * 5, **more):
    return Sample(seconds, lengths(*prompts), lengths(*outputs), **more)


class Watch:
    """A drift with a clock: minutes pass where they are seen."""

    def __init__(self, reference=None, **limits):
        self.drift = Drift(reference or Reference(), DriftLimits(**limits))
        self.at = MONDAY

    def see(self, found=None, minutes=1, **more):
        reasons = ()
        for _ in range(minutes):
            self.at += 60
            reasons = self.drift.see(Sighting(self.at, 60.0, found or Unknown("none"), **more))
        return {reason.kind: reason for reason in reasons}


# --- samples --------------------------------------------------------------------------------------------------------

PAGE = """
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 1
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:prompt_tokens_total{{engine="0"}} {tokens}
vllm:generation_tokens_total{{engine="0"}} {tokens}
vllm:request_success_total{{engine="0",finished_reason="stop"}} {n}
vllm:num_preemptions_total{{engine="0"}} {n}
vllm:prefix_cache_queries_total{{engine="0"}} {tokens}
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
vllm:request_prompt_tokens_bucket{{engine="0",le="500.0"}} {few}
vllm:request_prompt_tokens_bucket{{engine="0",le="1000.0"}} {n}
vllm:request_prompt_tokens_bucket{{engine="0",le="+Inf"}} {n}
vllm:request_prompt_tokens_sum{{engine="0"}} {tokens}
vllm:request_prompt_tokens_count{{engine="0"}} {n}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.5"}} {few}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="1.0"}} {n}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf"}} {n}
vllm:time_to_first_token_seconds_sum{{engine="0"}} {n}
vllm:time_to_first_token_seconds_count{{engine="0"}} {n}
"""


def page(n, few=0, running=3):
    return parse(PAGE.format(n=n, few=few, running=running, tokens=800 * n, hits=200 * n))


def test_sample_of_two_readings():
    """Counters become what they gained, gauges what they are, and a version's gaps Unknown."""
    found = sample(page(10), page(30, few=5), 15.0, Sla(ttft_ms=750))

    assert (15.0, 3, 1, 0.25, 20, 16000, 4000) == (
        found.seconds, found.running, found.waiting, found.usage, found.preemptions, found.queries, found.hits,
    )  # fmt: skip
    assert (pytest.approx(20), 16000) == (found.prompts.requests, found.prompts.tokens)
    assert Times(20, 20.0, 7.5) == found.ttft  # 15 between 0.5 and 1 s, half of them over 0.75 s
    assert Unknown("this server has no vllm:admission_rejections") == found.rejections
    assert isinstance(found.tpot, Unknown)


def test_buckets_become_octaves():
    """500 to 1000 tokens lie nearly all in the octave from 512, and no request is lost."""
    found = sample(page(10, few=4), page(30, few=4), 15.0).prompts

    assert (pytest.approx(20 * math.log2(512 / 500)), pytest.approx(20 * math.log2(1000 / 512))) == found.counts[8:10]


def test_a_restart_costs_one_interval():
    """Counters that fell back are no traffic, however large they are."""
    assert Unknown("the server began anew") == sample(page(1000), page(900), 15.0)
    assert Unknown("/metrics had none of vLLM's series") == sample(page(3), Metrics({}), 15.0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('le="500.0"}} 5', 'le="500.0"} -5'),
        ('le="500.0"} 5', 'le="500.0"} 900'),
        ('le="500.0"} 5', 'le="700.0"} 5'),
        ('request_prompt_tokens_sum{engine="0"} 24000', 'request_prompt_tokens_sum{engine="0"} -1'),
        ('request_prompt_tokens_count{engine="0"} 30', 'request_prompt_tokens_count{engine="0"} 1e300'),
        ('request_prompt_tokens_count{engine="0"} 30', 'request_prompt_tokens_count{engine="0"} NaN'),
        ('kv_cache_usage_perc{engine="0"} 0.25', 'kv_cache_usage_perc{engine="0"} -1e9'),
    ],
)  # fmt: skip
def test_garbage_is_unknown_or_nothing(old, new):
    """Contradictions of a histogram make that histogram unknown and leave the drift standing."""
    text = PAGE.format(n=30, few=5, running=3, tokens=24000, hits=6000).replace(old, new)
    found = sample(page(10), parse(text), 15.0)
    watch = Watch()

    watch.see(found, minutes=200)
    assert isinstance(found, Unknown) or isinstance(found.prompts, Unknown) or found.prompts.requests <= 30
    assert all(math.isfinite(value) and value >= 0 for value in watch.drift.workloads.usual.regime.plain())


@given(
    st.text(max_size=300),
    st.text(alphabet='vllm:request_prompt_tokens_bucket{le="0.5"}_sumcount\n -1e9+InfNa', max_size=400),
)
def test_any_text(one, other):
    """Whatever a server answers, a sample is a sample or Unknown."""
    for first, second in ((one, other), (other, one), (other, other)):
        found = sample(parse(first), parse(second), 15.0)

        assert isinstance(found, Sample | Unknown)


def test_distance_is_in_octaves():
    """A doubling is 1 whatever the shape, a tenth made four times as long is 0.2, and empty is no distance."""
    mixed = lengths(*[100] * 3, *[700] * 9, 9000)

    assert pytest.approx(1.0) == distance(mixed.counts, lengths(*[200] * 3, *[1400] * 9, 18000).counts)
    assert pytest.approx(0.2) == distance(lengths(*[100] * 10).counts, lengths(*[100] * 9, 400).counts)
    assert 0.0 == distance(mixed.counts, (0.0,) * OCTAVES)
    assert 0.0 == distance(mixed.counts, mixed.counts)


def test_slots():
    """Monday's first three hours are 0, Sunday's last 55."""
    assert [0, 0, 1, 55, 0] == [slot_of(MONDAY + h * HOUR) for h in (0, 2.99, 3, 167.9, 168)]


# --- the machine, age and news --------------------------------------------------------------------------------------

STRICT = (("gpus", "2xH100"), ("driver", "580.95"), ("vllm", "0.32.0"), ("revision", "abc"), ("torch", "2.9"))


def machine(**changes):
    return Fingerprint(tuple((name, changes.get(name, value)) for name, value in STRICT), ())


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"driver": "590.1"}, (Part.KERNELS,)),
        ({"torch": "2.10"}, (Part.KERNELS,)),
        ({"vllm": "0.33.0"}, (Part.SERVER,)),
        ({"revision": "def"}, (Part.SERVER,)),
        ({"gpus": "1xH100"}, (Part.KERNELS, Part.SERVER)),
        ({"driver": "590.1", "vllm": "0.33.0"}, (Part.KERNELS, Part.SERVER)),
    ],
)
def test_a_changed_machine(changes, parts):
    """After three sightings in a row, with both readings, and asking for the part that they are behind."""
    watch = Watch(Reference(fingerprint=machine()))
    reasons = [watch.see(fingerprint=machine(**changes)) for _ in range(3)]

    assert [{}, {}] == reasons[:2]
    found = reasons[2][Kind.FINGERPRINT]
    assert (parts, tuple(Evidence(n, dict(STRICT)[n], v) for n, v in sorted(changes.items()))) == (
        found.parts, tuple(sorted(found.evidence)),
    )  # fmt: skip
    assert all(f"{dict(STRICT)[name]} → {value}" in found.says for name, value in changes.items())


def test_a_flicker_is_no_change():
    """A device that is lost for two sightings, and readings that could not be taken, are nothing."""
    watch = Watch(Reference(fingerprint=machine()))
    seen = [machine(gpus="1xH100"), machine(gpus="1xH100"), machine()] * 3
    seen += [machine(driver=Unknown("the probe failed"))] * 5

    assert [{}] * 14 == [watch.see(fingerprint=found) for found in seen]


def test_a_change_is_answered_once():
    """Settled it stands no more, until something else changes; going back is a change only against the profile."""
    watch = Watch(Reference(fingerprint=machine()))
    for _ in range(3):
        watch.see(fingerprint=machine(driver="590.1"))
    watch.drift.settle([Kind.FINGERPRINT], watch.at)

    assert {} == watch.see(fingerprint=machine(driver="590.1"), minutes=5)
    assert {} == watch.see(fingerprint=machine(), minutes=5)
    assert Kind.FINGERPRINT in watch.see(fingerprint=machine(driver="591.0"), minutes=3)


def test_an_old_profile():
    """After 90 days, once that has stood for an hour by the steady clock: half an hour of a wrong year is nothing."""
    watch = Watch(Reference(profile="p", at=MONDAY - 89.9 * DAY))

    watch.at += 365 * DAY
    assert {} == watch.see(minutes=30)
    watch.at -= 365 * DAY
    assert {} == watch.see(minutes=60)
    watch.at += DAY
    found = watch.see(minutes=61)[Kind.AGE]
    assert ("the profile is 91 days old, 90 at most", (Part.SERVER,)) == (found.says, found.parts)
    watch.drift.settle([Kind.AGE], watch.at)
    assert {} == watch.see(minutes=120)


def test_a_better_prior():
    """News that promise enough are a reason once each."""
    watch, news = Watch(), Prior("surface-0.34.0", 0.12, "vLLM 0.34.0's surface")

    assert {} == watch.see(prior=news._replace(gain=0.04))
    found = watch.see(prior=news)[Kind.PRIOR]
    assert ("vLLM 0.34.0's surface promises +12%", "prior:surface-0.34.0") == (found.says, found.key)
    watch.drift.settle([Kind.PRIOR], watch.at)
    assert {} == watch.see(prior=news)
    assert Kind.PRIOR in watch.see(prior=news._replace(id="other"))
    for number in range(100):
        watch.see(prior=news._replace(id=str(number)))
        watch.drift.settle([Kind.PRIOR], watch.at)
    assert 16 == len(watch.drift.identity.settled_priors)


def test_reference_of_a_profile():
    """A stored profile says what was tuned, on what and for what."""
    measured = Measurement((("tpot_ms", Interval(19, 20, 21)),), LIMITED.workload, at=5.0)
    profile = Profile(machine(), Plan("m"), measured, id="p")

    assert Reference("p", machine(), LIMITED.workload, Interval(19, 20, 21), 5.0) == Reference.of(profile)


# --- the service ----------------------------------------------------------------------------------------------------

LIMITED = Reference(workload=Workload("w", 1000, 300, 8, sla=Sla(ttft_ms=500)), tpot_ms=Interval(19, 20, 21))
LATE = {"ttft": Times(5, 5.0, 1.0)}
IN_TIME = {"ttft": Times(5, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("kind", "bad", "says"),
    [
        (Kind.SLA, LATE, "the limits of the service are missed: 0.2 of requests late, 0.05 expected at most"),
        (Kind.PREEMPTIONS, {"preemptions": 1.0}, "requests are preempted: 0.2 preemptions a request"),
        (Kind.REJECTIONS, {"rejections": 1.0}, "requests are rejected: 0.2 rejections a request, 0.001"),
        (Kind.KV_USAGE, {"usage": 0.97}, "the KV cache is nearly full: 0.97 of the KV cache in use, 0.9"),
        (Kind.QUEUE, {"queue": Times(5, 10.0), "latency": Times(5, 20.0)}, "requests wait in the queue: 0.5 of a"),
        (Kind.SPEED, {"tpot": Times(5, 0.15), "running": 8.0}, "tokens take longer than the profile measured: 30 ms"),
    ],
)
def test_trouble_adds_up(kind, bad, says):
    """An hour of it is forgiven, two are not; it goes away when it has been made up for."""
    watch = Watch(LIMITED)

    assert {} == watch.see(interval(**bad), minutes=110)
    found = watch.see(interval(**bad), minutes=14)
    assert {kind} == set(found)
    assert found[kind].says.startswith(says)
    assert (Part.SERVER,) == found[kind].parts
    assert set() == set(watch.see(interval(**IN_TIME, preemptions=0.0, rejections=0.0, usage=0.1, running=8.0,
                                           tpot=Times(5, 0.1), queue=Times(5, 0.0), latency=Times(5, 20.0)),
                                  minutes=520))  # fmt: skip


def test_the_daily_peak_is_forgiven():
    """Ninety bad minutes each day never become a reason."""
    watch = Watch(LIMITED)

    for _ in range(10):
        assert {} == watch.see(interval(**LATE), minutes=90)
        assert {} == watch.see(interval(**IN_TIME), minutes=1350)


def test_trouble_is_answered_once():
    """Settled it is silent as long as it lasts, and counts again once it was gone."""
    watch = Watch(LIMITED)
    first = watch.see(interval(**LATE), minutes=130)[Kind.SLA]
    watch.drift.settle([Kind.SLA], watch.at)

    assert {} == watch.see(interval(**LATE), minutes=600)
    watch.see(interval(**IN_TIME), minutes=1200)
    again = watch.see(interval(**LATE), minutes=130)[Kind.SLA]
    assert first.key != again.key


def test_speed_is_compared_at_comparable_load():
    """At another concurrency, or with other lengths, a slower token is no loss of speed."""
    watch = Watch(LIMITED)

    assert {} == watch.see(interval(tpot=Times(5, 0.15), running=24.0), minutes=300)
    assert {} == watch.see(interval(prompts=(9000,) * 5, tpot=Times(5, 0.15), running=8.0), minutes=170)


def test_what_a_version_does_not_count_is_no_trouble():
    """Nothing is made up where a counter is missing; few requests are judged by their gauges alone."""
    watch = Watch(LIMITED)

    assert {} == watch.see(interval(), minutes=600)
    quiet = Sample(60.0, Unknown("no"), Unknown("no"), usage=0.99)
    assert {Kind.KV_USAGE} == set(watch.see(quiet, minutes=190))


# --- the workload ---------------------------------------------------------------------------------------------------


def quick(**more):
    """Limits under which a minute is a block."""
    return {"block_s": 60.0, "least_requests": 5.0, "warm_up_s": 300.0} | more


def test_prompts_that_become_four_times_as_long():
    """With blocks of one tick the third tick tells at the latest, with the figures."""
    watch = Watch(**quick())
    assert {} == watch.see(interval(), minutes=30)

    assert {} == watch.see(interval(prompts=(4000,) * 5))
    found = watch.see(interval(prompts=(4000,) * 5), minutes=2)[Kind.WORKLOAD]
    assert "the workload moved: prompt length 1000 → 4000 tokens" == found.says
    assert ((Part.SERVER,), (Evidence("prompt length", 1000.0, 4000.0, "tokens"),)) == (found.parts, found.evidence)


def test_a_doubling_inside_one_bucket():
    """Lengths that are all alike are compared by their mean: 520 and 1000 tokens lie in one octave."""
    watch = Watch(**quick())
    watch.see(interval(prompts=(520,) * 5), minutes=30)

    assert Kind.WORKLOAD in watch.see(interval(prompts=(1020,) * 5), minutes=6)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"outputs": (1300,) * 5}, "output length 300 → 1300 tokens"),
        ({"running": 40.0}, "running requests 4 → 40"),
        ({"hits": 10.0, "queries": 100.0}, "prefix hits 0.8 → 0.1 share"),
    ],
)
def test_other_dimensions(more, says):
    """Outputs, load and prefix hits are watched like prompts."""
    watch = Watch(**quick())
    usual = {"running": 4.0, "hits": 80.0, "queries": 100.0}
    watch.see(interval(**usual), minutes=30)

    found = watch.see(interval(**usual | more), minutes=4)
    assert f"the workload moved: {says}" == found[Kind.WORKLOAD].says


def test_a_short_burst_is_forgiven():
    """One strange block is not enough, and what it added is taken away by usual ones."""
    watch = Watch(**quick())
    watch.see(interval(), minutes=30)

    for _ in range(5):
        assert {} == watch.see(interval(prompts=(8000,) * 5))
        assert {} == watch.see(interval(), minutes=3)
    assert [0.0] * 4 == watch.drift.workloads.sums


def test_a_move_that_is_taken_back():
    """The reason goes away with what it says."""
    watch = Watch(**quick())
    watch.see(interval(), minutes=30)

    assert Kind.WORKLOAD in watch.see(interval(prompts=(4000,) * 5), minutes=5)
    assert {} == watch.see(interval(), minutes=10)


def test_a_move_is_answered_once():
    """After a re-tune the new lengths are usual, and the old ones do not surprise either; a third kind does."""
    watch = Watch(**quick())
    watch.see(interval(), minutes=30)
    watch.see(interval(prompts=(4000,) * 5), minutes=5)
    watch.drift.settle([Kind.WORKLOAD], watch.at)

    assert {} == watch.see(interval(prompts=(4000,) * 5), minutes=200)
    assert Kind.WORKLOAD in watch.see(interval(prompts=(20000,) * 5), minutes=5)


def test_traffic_beside_the_profile():
    """A profile measured with other lengths than a day of traffic has is a reason, once."""
    watch = Watch(Reference("p", workload=Workload("w", 4000, 300, 8)), **quick())

    found = watch.see(interval(), minutes=20)[Kind.WORKLOAD]
    assert "the traffic is not what the profile was measured with: prompt length 4000 → 1000 tokens" == found.says
    watch.drift.settle([Kind.WORKLOAD], watch.at)
    assert {} == watch.see(interval(), minutes=200)
    watch.drift.rebase(Reference("q", workload=Workload("w", 9000, 300, 8)))
    assert Kind.WORKLOAD in watch.see(interval(), minutes=20)


def test_a_glimpse_is_not_learnt():
    """The last minute of a block that lies in the next three hours says nothing about them."""
    usual, glimpse, enough = Usual(least_s=100.0), Mix(), Mix()
    glimpse.add(interval(seconds=60.0))
    enough.add(interval(seconds=120.0))

    usual.learn(3, glimpse)
    assert (False, 0.0) == (usual.known(3), usual.learnt_s)
    usual.learn(3, enough)
    usual.learn(3, glimpse)
    assert (True, 180.0) == (usual.known(3), usual.slots[3].time)


def test_a_little_traffic_takes_longer():
    """Blocks wait for enough requests, and give up after a day without."""
    watch = Watch(block_s=600.0, least_requests=50.0)

    watch.see(interval(prompts=(1000,), outputs=(300,)), minutes=49)
    assert 0 == watch.drift.blocks
    watch.see(interval(prompts=(1000,), outputs=(300,)), minutes=1)
    assert 1 == watch.drift.blocks
    watch.see(interval(prompts=(), outputs=()), minutes=1440)
    assert 2 == watch.drift.blocks
    assert {} == watch.drift.workloads.block


# --- clocks and restarts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-10 * DAY, -HOUR, -60.0, HOUR, 3 * DAY, 400 * DAY])
def test_a_clock_that_is_set_costs_one_interval(jump):
    """What was seen across it is left out, and the ticks after it count again."""
    watch = Watch(**quick())
    watch.see(interval(), minutes=30)
    watch.at += jump

    assert {} == watch.see(interval(prompts=(99_000,) * 5))
    assert 1 == watch.drift.left_out
    assert {} == watch.see(interval(), minutes=10)
    assert 1 == watch.drift.left_out


def test_a_machine_that_slept():
    """Hours without a tick, by both clocks, are no interval."""
    drift = Drift(Reference())
    drift.see(Sighting(MONDAY, 0.0, interval()))
    drift.see(Sighting(MONDAY + 5 * HOUR, 5 * HOUR, interval(seconds=5 * HOUR)))

    assert 1 == drift.left_out


def test_a_restart_goes_on():
    """Saved and loaded after each tick, the same reasons come at the same ticks; the text stays small."""
    one, other = Watch(LIMITED, **quick()), Watch(LIMITED, **quick())
    for minute in range(200):
        found = interval(prompts=(4000 if minute > 60 else 1000,) * 20, ttft=Times(20, 20.0, 5.0), running=3.0)
        kept = one.see(found)
        other.drift = Drift.loads(other.drift.dumps(), LIMITED, DriftLimits(**quick()))
        other.drift.last_at = other.at

        assert {k: r.key for k, r in kept.items()} == {k: r.key for k, r in other.see(found).items()}
    assert {Kind.WORKLOAD, Kind.SLA} == set(kept)


def test_settled_reasons_stay_settled():
    """What was answered is answered after a restart, too."""
    reference = Reference("p", fingerprint=machine(), workload=LIMITED.workload)
    watch = Watch(reference)
    watch.see(interval(**LATE), minutes=130, fingerprint=machine(driver="590"))
    watch.drift.settle([Kind.SLA, Kind.FINGERPRINT], watch.at)
    watch.drift = Drift.loads(watch.drift.dumps(), reference)

    assert {} == watch.see(interval(**LATE), minutes=30, fingerprint=machine(driver="590"))


def test_state_is_small():
    """A week and more of simulated traffic is less than 32 kB of JSON."""
    deployment, drift = Deployment(Scene(tick_s=600, rate=0.1)), Drift(Reference())
    while deployment.at < MONDAY + 9 * DAY:
        drift.see(deployment.tick())

    assert 10_000 < len(drift.dumps()) < 32_000
    assert 56 == len(drift.workloads.usual.slots)


def mangled():
    good = json.loads(Drift(Reference()).dumps())
    yield from ("", "[]", "null", "{}", "3", '"x"', "[" * 100_000)
    for key in good:
        yield json.dumps({k: v for k, v in good.items() if k != key})
        for value in (None, [], {}, 7, "x", [[1]], [["sla", 1]]):
            yield json.dumps(good | {key: value})


def test_garbage_state():
    """A text that is no state is a ValueError or a state, never anything else."""
    refused = 0
    for text in mangled():
        try:
            Drift.loads(text, Reference()).see(Sighting(MONDAY, 1.0, interval()))
        except ValueError:
            refused += 1
    assert refused > 20

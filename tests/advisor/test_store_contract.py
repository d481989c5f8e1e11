"""One contract for both databases: whatever the store promises, SQLite and PostgreSQL keep alike."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import SQLModel, func, select

from vllm_advisor.errors import StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import Plan
from vllm_advisor.profile import (
    Calibration,
    Event,
    Fingerprint,
    KernelConfig,
    KernelKey,
    Lease,
    Measurement,
    Origin,
    Profile,
    Provenance,
    QualityResult,
    Trial,
    TrialState,
)
from vllm_advisor.store import lookup, owner
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.store.tables import MeasurementRow, ProfileTrialRow
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS


FINGERPRINT = Fingerprint((("gpus", "2xL40S"), ("driver", "580.95")), (("gpus", "2xL40S"), ("weights", "bf16")))
RAG = PRESETS["rag"]
MEASURED = Measurement((("output_tok_s", Interval(90.0, 100.0, 110.0)),), RAG, 3, 60.0, "bench", 1000.0)
PASSED = QualityResult("kl", Interval(0.0, 0.01, 0.02), 0.05, True, at=1000.0)
PLAN = Plan("org/model", tensor_parallel_size=2, kv_cache_dtype="fp8", env=(("A", "1"),))
PROFILE = Profile(
    FINGERPRINT, PLAN, MEASURED, (PASSED,), Provenance(Origin.MEASURED, "tuner 0.1", 1000.0, "box"), "org/model",
    flags=(("--async-scheduling", True),),
)  # fmt: skip
TRIAL = Trial("study", "serve", PLAN, node="box", fingerprint=FINGERPRINT)
KEY = KernelKey("mxfp4_linear", "m64", "sm90", "abc", "H100", "580", "3.8.0", "13.0")


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.seconds = 5000.0

    def __call__(self):
        return self.seconds


def _binaries():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def _account():
    """PostgreSQL refuses to run as root."""
    if os.getuid():
        return None
    return next(user for user in ("postgres", "nobody") if user in {p.pw_name for p in pwd.getpwall()})


@pytest.fixture(scope="session")
def postgres():
    """The address of a PostgreSQL server of our own, without its database's name."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    folder, account = Path(tempfile.mkdtemp(prefix="advisor-pg-")), _account()
    if account:
        shutil.chown(folder, account)

    def call(*argv):
        subprocess.run(argv, check=True, user=account, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

    data = folder / "data"
    try:
        call(binaries / "initdb", "-D", data, "-U", "advisor", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
        options = f"-F -h '' -k {folder}"
        call(binaries / "pg_ctl", "-D", data, "-w", "-o", options, "-l", folder / "log", "start")
        try:
            yield f"postgresql://advisor@/{{}}?host={folder}"
        finally:
            call(binaries / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


NUMBERS = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/advisor.db"
    psycopg = pytest.importorskip("psycopg", reason="no driver: pip install 'psycopg[binary]'")
    address, name = request.getfixturevalue("postgres"), f"advisor{next(NUMBERS)}"
    with psycopg.connect(address.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.format(name)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(url, clock):
    with ProfileStore.open(url, now=clock) as opened:
        yield opened


def test_the_migrations_make_what_the_tables_say(store):
    """Alembic finds nothing to change between the upgraded database and the SQLModel classes."""
    with store._engine.connect() as connection:
        assert [] == compare_metadata(MigrationContext.configure(connection), SQLModel.metadata)


def test_opening_twice_keeps_what_is_there(url):
    """The second opening upgrades nothing and finds the first one's trial."""
    with ProfileStore.open(url) as first:
        number = first.add_trial(TRIAL)
    with ProfileStore.open(url) as second:
        assert [number] == [trial.id for trial in second.trials()]


def test_a_trial_runs_through_its_states(store, clock):
    """WAITING, RUNNING with its owner, COMPLETE with its figures; what goes in comes out."""
    number = store.add_trial(TRIAL)
    assert TRIAL._replace(id=number, created=5000.0) == _sorted(store.trial(number))
    store.start(number, "box:1:2")
    assert ("running", "box:1:2") == (store.trial(number).state, store.trial(number).owner)
    clock.seconds = 6000.0
    store.finish(number, TrialState.COMPLETE, MEASURED, quality=(PASSED,))
    done = store.trial(number)
    assert (TrialState.COMPLETE, 5000.0, 6000.0) == (done.state, done.started, done.finished)
    assert (MEASURED, (PASSED,)) == (done.measurement, done.quality)


def _sorted(trial):
    """Readings come back by name."""
    return trial._replace(fingerprint=FINGERPRINT) if trial.fingerprint.same(FINGERPRINT) else trial


def test_a_kernel_trial_keeps_its_settings(store):
    """Settings of all plain kinds, and no plan."""
    settings = (("BLOCK_M", 64), ("path", "avx2"), ("ratio", 0.5), ("split", None), ("warp", True))
    number = store.add_trial(Trial("k", "kernel", settings=settings))
    assert (None, settings) == (store.trial(number).plan, store.trial(number).settings)


def test_a_trial_ends_once(store):
    """A second end is an error, and the first stays."""
    number = store.add_trial(TRIAL)
    store.finish(number, TrialState.INFEASIBLE, reason="does not fit")
    with pytest.raises(StoreError, match="infeasible already"):
        store.finish(number, TrialState.COMPLETE, MEASURED)
    with pytest.raises(StoreError, match="no trial 999"):
        store.start(999)
    assert ("does not fit", None) == (store.trial(number).reason, store.trial(number).measurement)


@pytest.mark.parametrize(
    "end", [(TrialState.RUNNING, None), (TrialState.COMPLETE, None), (TrialState.FAILED, MEASURED)]
)
def test_an_end_is_an_end(store, end):
    """Only COMPLETE has figures, and RUNNING is no end."""
    number = store.add_trial(TRIAL)
    with pytest.raises(ValueError, match="a trial ends as"):
        store.finish(number, *end)


def test_stale_trials_are_recovered_by_node(store):
    """Of a node's running trials those whose owner is gone become FAILED; another node's stay."""
    numbers = [store.add_trial(TRIAL._replace(node=node)) for node in ("box", "box", "other")]
    for number, by in zip(numbers, ("gone", "here", "gone"), strict=True):
        store.start(number, by)
    assert (numbers[0],) == store.recover_stale("box", alive=lambda by: by == "here")
    assert ["failed", "running", "running"] == [store.trial(number).state for number in numbers]
    assert () == store.recover_stale("box", alive=lambda by: by == "here")


def test_trials_are_listed_by_study_and_state(store):
    """A search finds its own trials again."""
    first, second = store.add_trial(TRIAL), store.add_trial(TRIAL)
    store.add_trial(TRIAL._replace(study="other"))
    store.finish(first, TrialState.ABORTED, reason="Ctrl-C")
    assert [second] == [trial.id for trial in store.trials("study", TrialState.WAITING)]
    assert [first, second] == [trial.id for trial in store.trials("study")]


def test_a_profile_comes_back_with_its_trials(store):
    """Saved once with provenance, found by the beginning of its id; saving it again keeps one."""
    trials = (store.add_trial(TRIAL), store.add_trial(TRIAL))
    number = store.save_profile(PROFILE, trials)
    found = store.profile(number[:5])
    assert PROFILE.provenance._replace(trials=trials) == found.provenance
    assert (PLAN, MEASURED, (PASSED,), number) == (found.plan, found.measurement, found.quality, found.id)
    assert (("--async-scheduling", True),) == found.flags
    assert number == store.save_profile(PROFILE, trials)
    assert 1 == len(store.profiles())


def test_a_profile_and_its_trials_are_one_transaction(store):
    """A trial that does not exist: nothing of the profile stays."""
    with pytest.raises(StoreError):
        store.save_profile(PROFILE, (4711,))
    assert () == store.profiles()


def test_a_plan_that_fails_the_gate_is_not_stored(store):
    """A measured profile with a failed check is refused; an imported one is a prior and may be looked at."""
    bad = PROFILE._replace(quality=(PASSED._replace(passed=False),))
    with pytest.raises(StoreError, match="accuracy gate"):
        store.save_profile(bad)
    assert store.save_profile(bad._replace(provenance=Provenance(Origin.IMPORTED)))


def test_ids_must_say_which(store):
    """None, several, and a model's own."""
    ids = sorted(store.save_profile(PROFILE._replace(model=f"org/{i}")) for i in range(17))
    pairs = [(a, b) for a, b in itertools.pairwise(ids) if a[0] == b[0]]
    with pytest.raises(StoreError, match="begins several"):
        store.profile(pairs[0][0][0])
    for missing in ("", "zz", "%", "_"):
        with pytest.raises(StoreError, match="no profile"):
            store.profile(missing)
    assert ["org/3"] == [profile.model for profile in store.profiles("org/3")]


def test_removing_a_profile_takes_its_results_and_leaves_its_trials(store):
    """Foreign keys are on: measurements go, the trial stays."""
    trial = store.add_trial(TRIAL)
    number = store.save_profile(PROFILE, (trial,))
    store.remove_profile(number)
    assert ((), trial) == (store.profiles(), store.trial(trial).id)
    with store._engine.connect() as connection:
        left = [
            connection.scalar(select(func.count()).select_from(table)) for table in (MeasurementRow, ProfileTrialRow)
        ]
    assert [0, 0] == left
    with pytest.raises(StoreError, match="no profile"):
        store.remove_profile(number)


def test_strict_matches_come_first(store):
    """Newest first among equals; another driver is a prior; another machine is nothing."""
    old = store.save_profile(PROFILE)
    other = Fingerprint((("gpus", "2xL40S"), ("driver", "999")), FINGERPRINT.loose)
    newer = store.save_profile(PROFILE._replace(fingerprint=other, provenance=Provenance(Origin.MEASURED, at=2000.0)))
    far = Fingerprint(FINGERPRINT.strict, (("gpus", "H100"),))
    store.save_profile(PROFILE._replace(fingerprint=far))
    assert [old, newer] == [profile.id for profile in store.matching(FINGERPRINT)]


def test_an_imported_profile_is_a_prior_until_it_was_measured_here(store):
    """Validating replaces its figures with ours; a failed check leaves it as it was."""
    number = store.save_profile(PROFILE._replace(provenance=Provenance(Origin.IMPORTED)))
    assert not store.profile(number).is_truth
    with pytest.raises(StoreError, match="stays a prior"):
        store.validated(number, MEASURED, (PASSED._replace(passed=False),))
    ours = MEASURED._replace(figures=(("output_tok_s", Interval(50.0, 51.0, 52.0)),))
    store.validated(number, ours, (PASSED,))
    found = store.profile(number)
    assert (True, 5000.0, ours) == (found.is_truth, found.provenance.validated_at, found.measurement)


def test_lookup_sees_what_the_store_sees(store, url):
    """The reader without SQLModel finds the same profile, quality aside, and nothing for another machine."""
    number = store.save_profile(PROFILE)
    found = lookup.profiles_like([FINGERPRINT.loose, (("gpus", "H100"),)], url)
    assert "" == found.note
    assert [store.profile(number)._replace(quality=())] == [p._replace(quality=()) for p in found.profiles]
    assert () == lookup.profiles_like([(("gpus", "H100"),)], url).profiles


def test_one_tuner_a_node(store, clock):
    """A held lease is refused, renewed by its holder, free when given back or expired."""
    assert store.acquire("box", "far:1:1", seconds=60)
    assert not store.acquire("box", "far:2:2", seconds=60)
    assert store.acquire("other", "far:2:2")
    assert Lease("box", "far:1:1", 5060.0) == store.holder("box")
    clock.seconds = 5050.0
    assert store.heartbeat("box", "far:1:1", seconds=60)
    clock.seconds = 5105.0
    assert not store.acquire("box", "far:2:2")
    clock.seconds = 5111.0
    assert store.acquire("box", "far:2:2")
    assert not store.heartbeat("box", "far:1:1")
    assert (False, True, None) == (
        store.release("box", "far:1:1"), store.release("box", "far:2:2"), store.holder("box")
    )  # fmt: skip


def test_a_dead_holder_does_not_block_until_its_lease_ends(store):
    """A process of this host that is gone loses its lease at once, and is nobody who holds it."""
    host = owner.me().split(":")[0]
    assert store.acquire("box", f"{host}:{2**22 + 1}:1", seconds=600)
    assert None is store.holder("box")
    assert store.acquire("box", owner.me())


def test_events_are_kept_in_order_and_bounded(store):
    """The newest stay."""
    store.events_kept = 8
    for i in range(40):
        store.record(Event("tick", f"{i}", "box", (("n", i),)))
    kept = store.events()
    assert list(range(39, 39 - len(kept), -1)) == [dict(event.details)["n"] for event in kept]
    assert 8 <= len(kept) <= 16
    assert () == store.events(kind="other")
    assert 2 == len(store.events(2, node="box"))


def test_a_kept_text_replaces_itself_and_is_never_dropped(store):
    """One of a kind a node, however many events come after it; it is no event; None drops it."""
    store.events_kept = 8
    store.keep("policy", "box", "1")
    store.keep("policy", "box", "2" * 50_000)
    store.keep("policy", "other", "3")
    store.keep("drift", "box", "4")
    for i in range(40):
        store.record(Event("tick", f"{i}", "box"))
    assert ("2" * 50_000, "3", "4", None) == (
        store.kept("policy", "box"), store.kept("policy", "other"), store.kept("drift", "box"), store.kept("x", "box"),
    )  # fmt: skip
    assert {"tick"} == {event.kind for event in store.events(1000)}
    store.keep("policy", "box", None)
    assert (None, "3") == (store.kept("policy", "box"), store.kept("policy", "other"))


def test_a_kernel_is_found_by_its_whole_key(store):
    """Another driver: not this launch, but the first candidate; the same key again replaces it."""
    config = KernelConfig(KEY, (("BLOCK_M", 64),), 10.0, 12.0, True, 1.0)
    store.save_kernel(config)
    moved = KEY._replace(driver="590")
    assert (config, None, config) == (store.kernel(KEY), store.kernel(moved), store.kernel_before(moved))
    assert (None, None) == (store.kernel_before(KEY), store.kernel_before(KEY._replace(arch="sm100")))
    store.save_kernel(config._replace(median_us=9.0))
    assert (9.0,) == tuple(kept.median_us for kept in store.kernels("mxfp4_linear"))


def test_calibrations_come_back_newest_first(store):
    """By model and kind."""
    scales = Calibration("kv_scales", "org/model", "abc", (("layers.0.k_scale", 0.5),), "two layers", 1.0)
    store.save_calibration(scales)
    store.save_calibration(scales._replace(kind="experts"))
    assert ["experts", "kv_scales"] == [found.kind for found in store.calibrations("org/model")]
    assert (scales,) == store.calibrations("org/model", "kv_scales")


def test_unknown_readings_survive(store):
    """An Unknown comes back as one, and keeps its profile from matching strictly."""
    vague = Fingerprint((("driver", Unknown("no driver read")), ("gpus", "2xL40S")), FINGERPRINT.loose)
    number = store.save_profile(PROFILE._replace(fingerprint=vague))
    found = store.profile(number).fingerprint
    assert vague == found
    assert not found.same(vague)
    assert ("driver",) == found.unknown

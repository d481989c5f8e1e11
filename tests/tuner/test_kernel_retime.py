"""Winners after a change of versions: a search's first candidate, timed again, handed over or dropped."""

import json
from types import SimpleNamespace

import pytest


pytest.importorskip("numpy")

from vllm_advisor.profile import TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.budget import Budget
from vllm_tuner.kernel_tuning import handoff, retime, show
from vllm_tuner.kernel_tuning import run as loop
from vllm_tuner.kernel_tuning.attempt import Bench
from vllm_tuner.kernel_tuning.contract import KIND
from vllm_tuner.kernel_tuning.effort import EFFORTS
from vllm_tuner.kernel_tuning.points import point_of
from vllm_tuner.kernel_tuning.synthetic import Range
from vllm_tuner.kernel_tuning.testing import MACHINE, FakeKernels, Problem


AXES = (Range("block_m", (16, 32, 64)), Range("num_warps", (2, 4, 8)))
DEFAULT, WINNER = (16, 4), (64, 8)
NEW = MACHINE._replace(triton="3.9.0")


def fast(point, best=WINNER):
    return 1000.0 if point == best else 2000.0


def kernels(best=WINNER, **more):
    return FakeKernels(AXES, lambda point: fast(point, best), default=DEFAULT, **more)


@pytest.fixture
def store(tmp_path):
    """A store in which a search under Triton 3.8.0 kept a winner."""
    with ProfileStore.open(tmp_path / "s.db") as opened:
        [result] = run(opened, kernels()).tune([Problem()])
        assert loop.BETTER == result.verdict
        yield opened


def run(store, fake, machine=MACHINE, seconds=600.0):
    bench = Bench(fake, EFFORTS["quick"]._replace(slice_ms=1), store, lambda _: None, "node")
    return loop.Run(bench, store, lambda _: machine, Budget(seconds))


def again(store, fake, machine=NEW, seconds=600.0):
    asked = run(store, fake, machine, seconds)
    return retime.retime(asked, retime.stored(asked, Problem))


def files(written):
    """The kernels' writer, as a list of what it was given."""
    return SimpleNamespace(write_configs=lambda path, entries: (written.extend(entries), path.write_text("{}")))


def handed(store, fake, machine, path):
    fake.entry = lambda problem, point: (problem, point)
    written = []
    stands = handoff.write(path, handoff.winners(store, fake, lambda _: machine, Problem), fake, files(written))
    return stands, written


def test_a_new_triton_makes_the_old_winner_the_first_candidate(store):
    """Under 3.9.0 the default is timed first, then the old winner, then the others; both keys are kept."""
    fake = kernels()
    [result] = run(store, fake, NEW).tune([Problem()])
    order = [point_of(AXES, t.settings) for t in store.trials(result.about.study) if t.kind == KIND]

    assert [DEFAULT, WINNER] == order[:2]
    assert 9 == len(order)
    assert {("3.8.0", True), ("3.9.0", True)} == {(c.key.triton, c.kept) for c in store.kernels()}


@pytest.mark.parametrize("field", ["device", "driver", "runtime"])
def test_every_version_of_the_key_counts(store, field):
    """Another device, driver or runtime: nothing is known, and the old winner comes first."""
    machine = MACHINE._replace(**{field: "other"})
    [result] = run(store, kernels(), machine).tune([Problem()])
    order = [point_of(AXES, t.settings) for t in store.trials(result.about.study) if t.kind == KIND]

    assert [DEFAULT, WINNER] == order[:2]


def test_retime_times_only_the_winner_and_the_default(store):
    """Under 3.9.0 it still wins: two points timed, kept under the new key with its new gain."""
    fake = kernels()
    [result] = again(store, fake)

    assert {DEFAULT, WINNER} == set(fake.timed)
    assert (loop.BETTER, True, "3.9.0") == (result.verdict, result.config.kept, result.config.key.triton)
    assert result.config == store.kernel(result.about.key)


def test_retime_drops_who_no_longer_wins(store):
    """Under 3.9.0 the default is as fast: the old launch is kept as a loser, and its file goes away."""
    path = store.place.path.parent / "configs.json"
    assert (True, [(Problem(), WINNER)]) == handed(store, kernels(), MACHINE, path)
    fake = kernels(best=DEFAULT)
    [result] = again(store, fake)

    assert (loop.NOT_BETTER, False) == (result.verdict, result.config.kept)
    assert (False, []) == handed(store, fake, NEW, path)
    assert not path.exists()


def test_retime_drops_what_no_longer_compiles_or_is_wrong(store):
    """A spill, a wrong result, or an axis that lost the value: dropped with the reason, nothing compared."""
    [spills] = again(store, kernels(uncompilable=[WINNER]))
    assert (False, True) == (spills.config.kept, "4 bytes of spills" in spills.says)


def test_retime_drops_a_wrong_result(store):
    """As above, for what the twin refuses."""
    [wrong] = again(store, kernels(wrong=[WINNER]))

    assert (False, True) == (wrong.config.kept, "3 of 4 elements differ" in wrong.says)


def test_retime_drops_a_launch_that_the_kernels_no_longer_have(store):
    """The axes changed: 8 warps are none of them."""
    fake = FakeKernels((AXES[0], Range("num_warps", (2, 4))), fast, default=DEFAULT)
    [result] = again(store, fake)

    assert (False, "it is no launch of these kernels" in result.says) == (result.config.kept, True)


def test_retime_leaves_other_devices_alone(store):
    """A fleet's store: winners of another device are not this machine's business."""
    assert () == again(store, kernels(), MACHINE._replace(device="Other GPU"))


def test_retime_without_time_changes_nothing(store):
    """No second left: the winner stays as it is, unhanded under the new version."""
    [result] = again(store, kernels(), seconds=0.0)

    assert loop.UNDECIDED == result.verdict
    assert [("3.8.0", True)] == [(c.key.triton, c.kept) for c in store.kernels()]


def test_only_winners_that_stand_here_are_handed_over(store, tmp_path):
    """Of other kernels, a loser, an infeasible point: none reaches the file."""
    lost = Problem(n=1024)
    run(store, kernels(best=DEFAULT)).tune([lost])
    changed = kernels()
    changed.source = "feedfeedfeedfeed"

    assert (True, [(Problem(), WINNER)]) == handed(store, kernels(), MACHINE, tmp_path / "a.json")
    assert (False, []) == handed(store, changed, MACHINE, tmp_path / "b.json")
    assert (False, []) == handed(store, kernels(), NEW, tmp_path / "c.json")


def test_an_infeasible_point_is_never_handed_over(store, tmp_path):
    """Whatever was faster and wrong stays out."""
    fake = kernels(best=(32, 2), wrong=[(32, 2)])
    problem = Problem(n=2048)
    run(store, fake).tune([problem])
    _, written = handed(store, fake, MACHINE, tmp_path / "a.json")

    assert (32, 2) not in {point for _, point in written}
    assert 1 == len(store.trials(state=TrialState.INFEASIBLE))


def test_what_is_stored_is_listed(store):
    """Kernel, bucket, both times, the gain with its interval, the date; as JSON the same."""
    [row] = show.rows(store)
    text, document = "\n".join(show.listed([row])), show.document(row)

    assert "m<=16 n4096 k4096" in text
    assert "+100" in text or "+99" in text
    assert 1000 == pytest.approx(document["median_us"], rel=0.02)
    assert 2000 == pytest.approx(document["default_us"], rel=0.02)
    assert 1.9 < document["speedup"][0] <= document["speedup"][2] < 2.1
    assert {"block_m": 64, "num_warps": 8} == document["launch"]
    assert json.dumps(document)
    assert ["no tuned launch is stored: tuner kernels MODEL"] == show.listed(())

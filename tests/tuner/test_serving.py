"""A candidate measured on a real child, two in turns, and the whole of a search, against a stand-in with a speed."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.profile import Fingerprint, Origin, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner import contest, intervals, serving, tune, workloads
from vllm_tuner.budget import Budget
from vllm_tuner.effort import EFFORTS
from vllm_tuner.gate import Outcome
from vllm_tuner.lessons import Lessons
from vllm_tuner.serving import Bench
from vllm_tuner.spaces import defaults
from vllm_tuner.testing import KNEE, LIMIT, facts, install, small_space
from vllm_tuner.trial import BudgetSpent, Infeasible, Study
from vllm_tuner.workloads import Shape, Synthetic


SOON = 120.0


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """`vllm` on the PATH is the stand-in; where it is."""
    folder = install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "vllm"


@pytest.fixture
def bench(tmp_path):
    """One plan and its batch limits; each repeat is 8 requests."""
    space = small_space(facts(tmp_path / "tiny"), plans=1)
    source = Synthetic(space.facts.workload, Shape(1000, 256))
    return Bench(space, lambda _: source, EFFORTS["quick"]._replace(trials=4, waves=1), tmp_path / "runs")


def limited(bench, seqs):
    """The recommended plan with another limit of sequences."""
    start = list(bench.space.starts()[0])
    start[1] = seqs
    return bench.space.candidate(tuple(start))


def end():
    return time.monotonic() + SOON


def middle(measured, name):
    return measured.measurement.figure(name).mid


def alive(folder):
    """Processes that stand in a run folder below."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [cwd] if str(cwd.readlink()).startswith(str(folder)) else []
        except OSError:
            continue
    return found


def test_a_measurement_shows_what_the_limit_does(bench):
    """All 8 at once slow each other down by the stand-in's law; 4 at once are faster, though half of them wait."""
    best = serving.measure(bench, limited(bench, KNEE), "a", end(), None)
    crowded = serving.measure(bench, limited(bench, 128), "b", end(), None)

    assert middle(best, "output_tok_s") > 1.5 * middle(crowded, "output_tok_s")
    assert middle(best, "tpot_ms") < middle(crowded, "tpot_ms") / 2
    assert 3 <= best.measurement.repeats <= 4
    assert (bench.workload, "vllm_tuner.load") == (best.measurement.workload, best.measurement.tool)
    assert ("preemptions", 0.0) in best.counted
    document = json.loads((bench.folder / "a" / "bench-0.json").read_text())
    assert (8, 8, 0) == (document["completed"], document["max_concurrency"], document["failed"])
    assert [] == alive(bench.folder)


def test_the_warm_up_is_not_among_the_figures(bench):
    """The server has served one wave more than the figures count."""
    from vllm_tuner import load, metrics

    with serving.serving(bench, limited(bench, KNEE), "a", end()) as session:
        served = metrics.read(session.target.url).total("generation_tokens")
        assert sum(r.output_tokens for r in session.source.requests(8, serving._WARM_UP_SEED)) == served
        assert isinstance(session.played(0), load.Played)


def test_a_hopeless_candidate_is_not_repeated(bench):
    """Its interval is far below what it has to beat: the least of repeats is enough."""
    wild = bench._replace(effort=bench.effort._replace(tight=0.0, most=6))

    assert 3 == serving.measure(wild, limited(bench, 128), "a", end(), 1e9).measurement.repeats
    assert 6 == serving.measure(wild, limited(bench, KNEE), "b", end(), None).measurement.repeats


def repeated(effort, beat, noise, seed):
    """The values of a measurement with that noise around 1, until it is enough."""
    draw, values = workloads.seeded(seed), []
    while not serving.enough(values, effort, beat):
        values.append(draw.gauss(1.0, noise) * (0.7 if draw.random() < 0.05 else 1.0))
    return values


def test_two_values_that_lie_close_are_not_certain():
    """The third is asked for, and only the effort's own end is before it."""
    row = EFFORTS["quick"]._replace(least=1, most=9)

    assert not serving.enough([100.0, 100.0], row, None)
    assert serving.enough([100.0, 100.0, 100.1], row, None)
    assert not serving.enough([50.0, 50.0], row, 100.0)
    assert serving.enough([50.0], row._replace(most=1), None)


@pytest.mark.parametrize("name", EFFORTS)
def test_intervals_hold_what_they_say_and_a_better_one_is_not_given_up(name):
    """400 seeded measurements with 5 % of noise: the truth lies in nine intervals of ten; with one repeat in twenty
    disturbed, a candidate that is 10 % better than what it has to beat is given up less than once in a hundred."""
    row = EFFORTS[name]
    plain = [[v for v in repeated(row, None, 0.05, seed) if v > 0.8] for seed in range(400)]
    held = sum(abs(sum(v) / len(v) - 1) <= intervals.half_width(v) for v in plain)
    given_up = sum(intervals.mean(repeated(row, 0.9, 0.05, seed)).high < 0.9 for seed in range(400))

    assert held >= 0.88 * 400
    assert given_up < 4


def test_a_start_without_memory_is_infeasible_with_the_diagnosis(bench, monkeypatch):
    """What `advisor doctor` says of the child's log."""
    monkeypatch.setenv(LIMIT, "1000")

    with pytest.raises(Infeasible, match=r"DOC-\d+: .*do(es)? not fit"):
        serving.measure(bench, limited(bench, KNEE), "a", end(), None)


def test_a_start_that_nobody_understands_is_a_failure(bench, path):
    """Not infeasible: it may work the next time."""
    path.write_text("#!/bin/sh\necho something odd; exit 3\n")

    with pytest.raises(EngineError, match="something odd"):
        serving.measure(bench, limited(bench, KNEE), "a", end(), None)


def test_a_start_beyond_the_end_is_the_budget_s(bench, path):
    """The server may be slow: it is no fault of the configuration."""
    path.write_text("#!/bin/sh\nexec sleep 100\n")

    with pytest.raises(BudgetSpent):
        serving.measure(bench, limited(bench, KNEE), "a", time.monotonic() + 0.5, None)
    assert [] == alive(bench.folder)


def test_what_a_killed_tuner_left_is_swept_up(bench):
    """1. a child in a run folder, one elsewhere with its number noted, 2. sweep. Result: only the first is stopped."""
    left = []
    for name, cwd in (("trial-1", bench.folder / "trial-1"), ("trial-2", bench.folder.parent)):
        (bench.folder / name).mkdir(parents=True)
        child = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], cwd=cwd, start_new_session=True
        )
        (bench.folder / name / "tuner.pid").write_text(str(child.pid))
        left.append(child)
    try:
        assert (left[0].pid,) == serving.sweep(bench.folder)
        assert -9 == left[0].wait(timeout=10)
        assert left[1].poll() is None
        assert () == serving.sweep(bench.folder)
    finally:
        left[1].kill()
        left[1].wait()


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_contest_is_won_by_what_is_better(bench, together):
    """4 against 128 sequences: adopted, side by side and one server at a time."""
    found = contest.contest(bench, limited(bench, KNEE), limited(bench, 128), end(), together=together)

    assert (True, True) == (found.won, found.decision.wins >= 7)
    assert found.decision.gain.low > 0
    assert found.candidate.figure("output_tok_s").mid > found.incumbent.figure("output_tok_s").mid
    assert found.decision.rounds == found.candidate.repeats == found.incumbent.repeats


def test_a_contest_with_oneself_is_not_won(bench):
    """The same configuration on both sides is no better than itself."""
    few = bench._replace(effort=bench.effort._replace(rounds=7))
    found = contest.contest(few, limited(bench, KNEE), limited(bench, KNEE), end(), together=True)

    assert (False, Outcome.KEEP) == (found.won, found.decision.outcome)


def test_two_servers_share_a_processor_but_never_a_gpu(bench, tmp_path):
    """With the memory for both, which a fixed cache tells."""
    small, node = limited(bench, 8), small_space(facts(tmp_path / "n", machine="8xH100"))
    huge = small._replace(plan=defaults(node.facts, node.plans).plan)

    assert contest.fit_together(bench.space, small, small)
    assert not contest.fit_together(bench.space, small, huge)
    assert not contest.fit_together(node, node.candidate(node.starts()[0]), node.candidate(node.starts()[0]))


def searched(bench, tmp_path, seconds=SOON):
    """The outcome of a whole search, and the profile that is kept of it."""
    study = Study("study", "node", Fingerprint((("gpus", "x"),), (("gpus", "x"),)), bench.workload)
    with ProfileStore.open(tmp_path / "s.db") as store:
        outcome = tune.tune(study, bench, store, Budget(seconds), [].append, tune.Wish(lessons=Lessons()))
        kept = tune.profile(outcome, "org/m")
        if kept:
            store.save_profile(kept)
        return outcome, store.profiles() if kept else ()


@pytest.mark.slow
def test_a_search_finds_the_better_plan_proves_it_and_keeps_it(bench, tmp_path):
    """The stand-in is fastest at 4 sequences; its gain over vLLM's defaults is shown, and its profile is measured."""
    outcome, profiles = searched(bench, tmp_path)

    assert (tune.BETTER, KNEE) == (outcome.verdict, outcome.chosen.plan.max_num_seqs)
    assert "against vLLM's defaults: +" in outcome.says
    assert 128 == outcome.incumbent.plan.max_num_seqs
    profile = profiles[0]
    assert (Origin.MEASURED, "org/m", KNEE) == (profile.provenance.origin, profile.model, profile.plan.max_num_seqs)
    assert {t.id for t in outcome.trials} == set(profile.provenance.trials)
    assert profile.measurement.figure("output_tok_s") == outcome.contest.candidate.figure("output_tok_s")


def test_where_nothing_is_better_the_defaults_are_the_answer(bench, tmp_path):
    """Only worse limits to choose from: vLLM's defaults are chosen, and that is said."""
    plan, seqs, tokens, eager = bench.space.knobs
    worse = bench.space._replace(
        knobs=(plan, seqs._replace(values=(8,)), tokens._replace(values=(8,)), eager._replace(values=(True,)))
    )
    outcome, profiles = searched(bench._replace(space=worse), tmp_path)

    assert (tune.NOT_BETTER, outcome.incumbent) == (outcome.verdict, outcome.chosen)
    assert re.search("nothing measured better than vLLM's defaults|not better|no proof", outcome.says)
    assert 128 == profiles[0].plan.max_num_seqs


@pytest.mark.slow
def test_where_the_defaults_do_not_start_the_best_that_does_is_chosen(bench, tmp_path, monkeypatch):
    """No gain is claimed over what does not run."""
    monkeypatch.setenv(LIMIT, "1000")
    outcome, _ = searched(bench._replace(effort=bench.effort._replace(trials=16)), tmp_path)

    assert (tune.NO_DEFAULTS, None, 512) == (
        outcome.verdict, outcome.contest, outcome.chosen.plan.max_num_batched_tokens
    )  # fmt: skip
    assert "vLLM's defaults did not run here (DOC-" in outcome.says
    failed = [t.plan for t in outcome.trials if t.state is TrialState.INFEASIBLE]
    assert {2048} == {plan.max_num_batched_tokens for plan in failed}
    # Of the eight points above the limit three ask for no less than one that had failed, and are not started.
    assert [128, 8, 4, 8, 4] == [plan.max_num_seqs for plan in failed]


def test_where_nothing_runs_nothing_is_chosen(bench, tmp_path, monkeypatch):
    """And nothing is kept as a profile."""
    monkeypatch.setenv(LIMIT, "1")
    outcome, profiles = searched(bench, tmp_path)

    assert (tune.NOTHING, None, ()) == (outcome.verdict, outcome.chosen, profiles)


def test_a_budget_that_ends_early_is_no_verdict(bench, tmp_path):
    """Time for the defaults and little more: vLLM's defaults stay."""
    outcome, _ = searched(bench, tmp_path, seconds=3.0)

    assert outcome.verdict in (tune.UNDECIDED, tune.NOT_BETTER, tune.NOTHING)
    assert outcome.chosen in (None, outcome.incumbent)

"""A whole search with a faster plan that computes something else: compared, chosen or refused, kept as what it is."""

import os
from dataclasses import replace

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.profile import Fingerprint, Measurement, Trial, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval
from vllm_tuner import gate, quality_gate, tune
from vllm_tuner.budget import Budget
from vllm_tuner.contest import Contest
from vllm_tuner.effort import EFFORTS
from vllm_tuner.knobs import Knob
from vllm_tuner.quality_exam import LEVELS
from vllm_tuner.serving import Bench, Measured
from vllm_tuner.testing import KNEE, LIMIT, SHIFT, facts, install, small_space
from vllm_tuner.trial import ACCURACY, KIND, Candidate, Study
from vllm_tuner.tune import Wish
from vllm_tuner.workloads import Shape, Synthetic


QUANTIZED = "fp8_per_channel"
FEW = LEVELS["quick"]._replace(prompts=6, tokens=16, repeats=1, arithmetic=1, code=1)


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """`vllm` on the PATH is the stand-in, which is twice as fast with --quantization."""
    folder = install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "vllm"


@pytest.fixture
def bench(tmp_path):
    """Two plans at the best limit, one of them quantized; each repeat is 8 requests."""
    space = small_space(facts(tmp_path / "tiny"))
    plan, seqs, tokens, eager = space.knobs
    values = (8192,), (False,)
    fixed = (tokens._replace(values=values[0], default=8192), eager._replace(values=values[1], default=False))
    space = space._replace(knobs=(plan, seqs._replace(values=(KNEE,), default=KNEE), *fixed))
    space = space._replace(
        plans=tuple(
            (n, r._replace(plan=replace(r.plan, max_num_seqs=KNEE, max_num_batched_tokens=8192)))
            for n, r in space.plans
        )
    )
    source = Synthetic(space.facts.workload, Shape(1000, 256))
    return Bench(space, lambda _: source, EFFORTS["quick"]._replace(trials=2, waves=1, rounds=8), tmp_path / "runs")


@pytest.fixture
def law(monkeypatch):
    """Figures by a law instead of a load: quantized twice as fast, 128 sequences half as fast. Comparisons are real."""

    def speed(candidate):
        return 1000.0 * (2 if candidate.plan.quantization else 1) * (0.5 if candidate.plan.max_num_seqs > KNEE else 1)

    def measured(candidate, load):
        figures = {"output_tok_s": speed(candidate), "request_s": speed(candidate) / 4, "e2el_ms": 20.0}
        return Measurement(tuple((name, Interval(x, x, x)) for name, x in sorted(figures.items())), load, 2, 0.1)

    def contest(bench, ours, theirs, _end, *, quality, **_how):
        decision = gate.decide(quality, [gate.Pair(speed(theirs), speed(ours))] * 7, most_rounds=7)
        return Contest(measured(ours, bench.workload), measured(theirs, bench.workload), decision)

    monkeypatch.setattr(tune.serving, "measure", lambda b, c, *_: Measured(measured(c, b.workload)))
    monkeypatch.setattr(tune.contests, "contest", contest)


OURS = Fingerprint((("model", "tiny"),), (("gpus", "x"),))
SIBLINGS = Fingerprint((("model", "tiny-fp8"),), (("gpus", "x"),))


class Ran:
    """A search, with what was said, and what the store has of it."""

    def __init__(self, bench, place, wish=None, seconds=120.0, others=()):
        study = Study("study", "node", OURS, bench.workload, others)
        self.events = []
        with ProfileStore.open(place) as store:
            budget = Budget(seconds)
            self.outcome = tune.tune(study, bench, store, budget, self.events.append, wish or Wish(FEW))
            made = tune.profile(self.outcome, "org/m")
            self.profile = store.profile(store.save_profile(made)) if made else None
            self.trials = store.trials()

    def compared(self):
        """The comparisons with the reference."""
        return [trial for trial in self.trials if trial.kind == ACCURACY]

    def said(self, kind):
        return [event.message for event in self.events if event.kind == kind]


@pytest.mark.slow
def test_what_computes_as_well_wins_and_its_figures_are_kept(bench, tmp_path):
    """The quantized plan is compared, then fights; the figures are in the comparison's trial and in the profile."""
    ran = Ran(bench, tmp_path / "s.db")
    (compared,) = ran.compared()

    assert (tune.BETTER, QUANTIZED) == (ran.outcome.verdict, ran.outcome.chosen.plan.quantization)
    assert (TrialState.COMPLETE, QUANTIZED, OURS) == (compared.state, compared.plan.quantization, compared.fingerprint)
    names = ("KL divergence", "top-1 agreement", "perplexity ratio")
    assert names == tuple(r.check for r in compared.quality) == tuple(r.check for r in ran.profile.quality)
    assert all(r.passed and r.note.startswith("quick, normal, against ") for r in ran.profile.quality)
    assert compared.id in ran.profile.provenance.trials
    assert ran.profile.provenance.validated_at > 0
    assert 0.5 < ran.outcome.contest.decision.gain.mid


@pytest.mark.usefixtures("law")
def test_a_refused_plan_makes_way_for_the_next_best(bench, tmp_path, monkeypatch):
    """Half a nat off: refused with its figures; the plan that computes what was asked for wins and is stored alone."""
    monkeypatch.setenv(SHIFT, "0.5")
    ran = Ran(bench, tmp_path / "s.db")
    (compared,) = ran.compared()

    assert (tune.BETTER, None) == (ran.outcome.verdict, ran.outcome.chosen.plan.quantization)
    assert [QUANTIZED] == [trial.plan.quantization for trial, _ in ran.outcome.refused]
    assert "KL divergence is" in compared.reason
    assert not all(result.passed for result in compared.quality)
    assert (None, ()) == (ran.profile.plan.quantization, ran.profile.quality)
    assert 1 == len(ran.said("refused"))


@pytest.mark.usefixtures("law")
def test_where_only_worse_answers_are_faster_the_defaults_stay(bench, tmp_path, monkeypatch):
    """Nothing but the refused plan beats the defaults: they are chosen, and the sentence says why."""
    monkeypatch.setenv(SHIFT, "0.5")
    only = bench.space._replace(
        plans=bench.space.plans[1:],
        knobs=(bench.space.knobs[0]._replace(values=(2,), default=2), *bench.space.knobs[1:]),
    )
    ran = Ran(bench._replace(space=only), tmp_path / "s.db")

    assert (tune.NOT_BETTER, ran.outcome.incumbent) == (ran.outcome.verdict, ran.outcome.chosen)
    assert "nothing that computes as well measured better" in ran.outcome.says
    assert ran.profile.plan.quantization is None


@pytest.mark.usefixtures("law")
def test_a_search_that_goes_on_does_not_compare_twice(bench, tmp_path):
    """1. a search, 2. the same again. Result: the comparison is known; another class of work is compared anew."""
    first = Ran(bench, tmp_path / "s.db")
    again = Ran(bench, tmp_path / "s.db")

    assert 1 == len(again.compared()) == len(first.compared())
    assert any("known from before" in message for message in again.said("accuracy"))
    assert first.profile.quality == again.profile.quality


@pytest.mark.usefixtures("law")
def test_without_the_gate_the_profile_is_unvalidated(bench, tmp_path, monkeypatch):
    """--no-quality: nothing is compared, the fastest wins, and what is kept says so."""
    monkeypatch.setenv(SHIFT, "0.5")
    ran = Ran(bench, tmp_path / "s.db", Wish(None))

    assert ([], QUANTIZED) == (ran.compared(), ran.profile.plan.quantization)
    assert (0.0, ()) == (ran.profile.provenance.validated_at, ran.profile.quality)
    assert "unvalidated: its accuracy was not checked (--no-quality)" in ran.profile.provenance.note


def test_without_a_reference_nothing_can_be_compared(bench, tmp_path, monkeypatch):
    """What was asked for does not start: the best that does is chosen, unvalidated, with the reason."""
    plans = tuple((n, r._replace(plan=replace(r.plan, max_num_batched_tokens=512))) for n, r in bench.space.plans[1:])
    tokens = bench.space.knobs[2]._replace(values=(512,), default=512)
    knobs = (bench.space.knobs[0]._replace(values=(2,), default=2), bench.space.knobs[1], tokens, bench.space.knobs[3])
    monkeypatch.setenv(LIMIT, "1000")
    ran = Ran(bench._replace(space=bench.space._replace(plans=plans, knobs=knobs)), tmp_path / "s.db")

    assert (tune.NO_DEFAULTS, 0.0) == (ran.outcome.verdict, ran.profile.provenance.validated_at)
    assert "nothing that computes what was asked for runs here" in ran.profile.provenance.note


@pytest.mark.usefixtures("law")
def test_a_comparison_without_time_leaves_it_open(bench, tmp_path, monkeypatch):
    """The time is up in the comparison: the defaults stay, and it is said."""

    def late(*_args):
        raise tune.BudgetSpent

    monkeypatch.setattr(quality_gate.quality_exam, "answers", late)
    ran = Ran(bench, tmp_path / "s.db")

    assert (tune.UNDECIDED, ran.outcome.incumbent) == (ran.outcome.verdict, ran.outcome.chosen)
    assert "its accuracy was not compared: the time was up" in ran.outcome.says
    assert "the comparison was not finished" == ran.outcome.accuracy_of(ran.outcome.best).unchecked
    assert None is ran.profile.plan.quantization


@pytest.mark.usefixtures("law")
def test_a_server_that_answers_nonsense_is_refused(bench, tmp_path, monkeypatch):
    """It cannot be compared, so it may not win; the trial has the reason."""
    first = quality_gate.quality_exam.answers
    seen = []

    def broken(target, exam, end):
        seen.append(target)
        if len(seen) > 1:
            raise EngineError("the server's prompt_logprobs can't be read: nan")
        return first(target, exam, end)

    monkeypatch.setattr(quality_gate.quality_exam, "answers", broken)
    ran = Ran(bench, tmp_path / "s.db")

    assert None is ran.outcome.chosen.plan.quantization
    assert [TrialState.FAILED] == [trial.state for trial in ran.compared()]
    assert "it could not be compared with the reference" in ran.outcome.refused[0][1].refused


@pytest.mark.usefixtures("law")
def test_only_one_candidate_is_measured_and_always_compared(bench, tmp_path):
    """A stored plan: no search; both sides measured anew, in turns, whatever the first figures said."""
    candidate = Candidate(replace(bench.space.plans[0][1].plan, max_num_seqs=128))
    first = Ran(bench, tmp_path / "s.db", Wish(FEW, candidate))
    again = Ran(bench, tmp_path / "s.db", Wish(FEW, candidate))

    assert [[KIND] * 2, [KIND] * 4] == [[t.kind for t in ran.trials] for ran in (first, again)]
    assert first.outcome.contest is not None
    assert (tune.NOT_BETTER, 2) == (first.outcome.verdict, len(first.outcome.trials))


@pytest.mark.usefixtures("law")
def test_a_profile_depends_on_the_checkpoint_that_it_loads(bench, tmp_path):
    """A sibling has its own revision: the fingerprint is of what is loaded, the model of what was asked for."""
    name = bench.space.facts.model.name
    ran = Ran(bench, tmp_path / "s.db", others=((name, SIBLINGS),))

    assert ("org/m", SIBLINGS) == (ran.profile.model, ran.profile.fingerprint)
    assert {SIBLINGS} == {trial.fingerprint for trial in ran.trials}


def test_time_is_kept_back_for_the_comparison(bench):
    """Two starts and every question twice, only where something has to be compared."""
    figures = (("e2el_ms", Interval(1000.0, 1000.0, 1000.0)),)
    measured = Measurement(figures, bench.workload, 2, 10.0)
    incumbent = Trial("s", KIND, bench.space.plans[0][1].plan, started=1.0, finished=31.0, measurement=measured)
    same = bench._replace(space=bench.space._replace(plans=bench.space.plans[:1]))
    kept = [
        tune._kept_back(made, incumbent, wish)
        for made, wish in ((bench, Wish(FEW)), (same, Wish(FEW)), (bench, Wish(None)))
    ]

    assert pytest.approx(kept[1] + 2 * (20 + FEW.requests)) == kept[0]
    assert kept[1] == kept[2]


@pytest.mark.usefixtures("law")
def test_the_plan_that_runs_has_to_be_beaten(bench, tmp_path):
    """`against`: the incumbent is that plan. A slow one gives way, one that is as good stays, and the words name it."""
    best = Candidate(bench.space.plans[0][1].plan)
    slow = Candidate(replace(best.plan, max_num_seqs=128))
    plain = bench._replace(space=bench.space._replace(plans=bench.space.plans[:1]))
    plain = plain._replace(space=plain.space._replace(knobs=(Knob("plan", (1,), 1), *plain.space.knobs[1:])))

    beaten = Ran(plain, tmp_path / "a.db", Wish(FEW, against=slow)).outcome
    stays = Ran(plain, tmp_path / "b.db", Wish(FEW, against=best)).outcome

    assert (tune.BETTER, slow.plan) == (beaten.verdict, beaten.incumbent.plan)
    assert "against the plan that runs: +100.0 %" in beaten.says
    assert (stays.incumbent.id, best.plan) == (stays.chosen.id, stays.chosen.plan)
    assert tune.BETTER != stays.verdict

"""The loop, with a store on disk and a law instead of a server: what it asks, what it keeps, and how it ends."""

import math

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.profile import Fingerprint, Measurement, QualityResult, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval
from vllm_tuner.budget import Budget
from vllm_tuner.search import Climb, Grid, Search, Tpe, strategy
from vllm_tuner.serving import Measured
from vllm_tuner.spaces import Knob
from vllm_tuner.testing import facts, small_space
from vllm_tuner.trial import ACCURACY, BudgetSpent, Ended, Infeasible, Study, candidate_of, known


class Clock:
    """Seconds that pass only where a measurement takes them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Law:
    """A measurement by a law: best at 8 sequences and 1,024 tokens. Counts, takes a minute, and may misbehave."""

    def __init__(self, clock, best=(8, 1024), **raises):
        self.clock, self.best, self.raises, self.seen, self.ends = clock, best, raises, [], []

    def __call__(self, candidate, _name, end, _beat):
        plan = candidate.plan
        self.seen.append(candidate)
        self.ends.append(end)
        self.clock.now += 60
        for number, error in self.raises.items():
            if number == f"at_{len(self.seen)}":
                raise error
        seqs, tokens = self.best
        apart = abs(math.log2(plan.max_num_seqs / seqs)) + abs(math.log2(plan.max_num_batched_tokens / tokens))
        speed = 1000 / (1 + apart)
        figures = {"output_tok_s": speed, "request_s": speed / 12, "e2el_ms": 100.0, "tpot_ms": 10.0, "ttft_ms": 5.0}
        return Measured(
            Measurement(tuple((n, Interval(v, v, v)) for n, v in sorted(figures.items()))), (("preemptions", 0),)
        )


@pytest.fixture
def store(tmp_path):
    """A store in a file."""
    with ProfileStore.open(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """One plan and its batch limits, wide enough to search: 8 × 6 points."""
    found = small_space(facts(tmp_path_factory.mktemp("m") / "tiny"), plans=1)
    plan, seqs, tokens, _ = found.knobs
    wide = (
        plan,
        seqs._replace(values=(1, 2, 4, 8, 16, 32, 64, 128)),
        tokens._replace(values=(256, 512, 1024, 2048, 4096, 8192)),
    )
    return found._replace(knobs=wide)


def searched(space, store, law, seconds=36_000.0, told=None):
    study = Study("study", "node", Fingerprint((("gpus", "x"),), (("gpus", "x"),)), space.facts.workload)
    events = [] if told is None else told
    return Search(study, space, store, law, Budget(seconds, law.clock), events.append)


def best(search, trials):
    top = max(trials, key=lambda t: search.worth(t) or 0)
    return top.plan.max_num_seqs, top.plan.max_num_batched_tokens


def test_a_small_space_is_searched_whole(space, store):
    """Fewer points than trials: every one is measured once, and the best is the law's."""
    law = Law(Clock())
    search = searched(space, store, law)
    trials = search.run(strategy(space, 48), 48)

    assert isinstance(strategy(space, 48), Grid)
    legal = [c for p in space.points() if not space.objection(c := space.candidate(p))]
    assert len(legal) == len(trials) == len(set(law.seen))
    assert (8, 1024) == best(search, trials)


def test_the_estimator_finds_the_best_in_a_part_of_the_space(space, store):
    """24 of 48 points: at least 95 % of the best, and the recommended plan was asked first."""
    search = searched(space, store, Law(Clock()))
    trials = search.run(strategy(space, 24), 24)

    assert isinstance(strategy(space, 24), Tpe)
    assert candidate_of(trials[0]) == space.candidate(space.starts()[0])
    assert 24 == len({candidate_of(t) for t in trials})
    assert 950 <= max(search.worth(t) for t in trials)


def test_few_trials_climb_from_the_recommended_plan(space, store):
    """The best is four steps away, in a space of 48: nine trials reach it."""
    search = searched(space, store, Law(Clock(), best=(2, 512)))
    trials = search.run(strategy(space, 9), 9)

    assert isinstance(strategy(space, 9), Climb)
    assert candidate_of(trials[0]) == space.candidate(space.starts()[0])
    assert (2, 512) == best(search, trials)


def test_a_climb_ends_on_the_top(space, store):
    """Nothing next to the best one is left to ask: the search ends before its trials are used up."""
    law = Law(Clock())
    trials = searched(space, store, law).run(Climb(space), 40)

    assert 5 <= len(trials) <= 9


def test_the_same_search_asks_the_same(space, tmp_path):
    """Seeded: two stores, one order."""
    orders = []
    for name in "ab":
        law = Law(Clock())
        with ProfileStore.open(tmp_path / name) as opened:
            searched(space, opened, law).run(strategy(space, 10), 10)
        orders.append(law.seen)

    assert orders[0] == orders[1]


def test_every_end_is_in_the_store_with_its_reason(space, store):
    """Complete, infeasible with the diagnosis, failed with the message; the search goes on after each."""
    law = Law(Clock(), at_2=Infeasible("DOC-04: no room"), at_3=EngineError("it hung"))
    trials = searched(space, store, law).run(strategy(space, 5), 5)
    kept = store.trials("study")

    assert ["complete", "infeasible", "failed", "complete", "complete"] == [t.state for t in kept]
    assert ["", "DOC-04: no room", "it hung", "", ""] == [t.reason for t in kept]
    assert [t.id for t in kept] == [t.id for t in trials]
    assert kept[0].measurement.figures == trials[0].measurement.figures
    assert all(t.node == "node" and t.kind == "serve" and t.fingerprint for t in kept)


def test_a_search_goes_on_where_it_was(space, store):
    """1. four trials, 2. again with six. Result: only two are measured, and what is infeasible is not tried again."""
    searched(space, store, Law(Clock(), at_2=Infeasible("no"))).run(strategy(space, 10), 4)
    law, told = Law(Clock()), []
    trials = searched(space, store, law, told=told).run(strategy(space, 10), 6)

    assert (6, 2) == (len(trials), len(law.seen))
    assert 6 == len(store.trials("study"))
    assert 4 == sum(event.message.startswith("known from before") for event in told)


def test_what_failed_or_was_stopped_is_tried_again(space, store):
    """Only a measurement or a diagnosis is an answer."""
    searched(space, store, Law(Clock(), at_1=EngineError("it hung"))).run(strategy(space, 10), 1)
    law = Law(Clock())
    searched(space, store, law).run(strategy(space, 10), 1)

    assert ["failed", "complete"] == [t.state for t in store.trials("study")]
    assert 1 == len(law.seen)


def test_nothing_starts_that_the_budget_cannot_hold(space, store):
    """200 s, 60 s a trial, 90 s kept back: one is begun before its length is known, one more fits, then no other."""
    law = Law(Clock())
    trials = searched(space, store, law, seconds=200).run(strategy(space, 10), 10, kept_back=90)

    assert 1 == len(trials)
    assert [110] == law.ends


def test_the_budget_ends_a_trial_and_the_search(space, store):
    """The trial that ran when the time was up is ABORTED, and is not among the results."""
    law = Law(Clock(), at_2=BudgetSpent())
    trials = searched(space, store, law).run(strategy(space, 10), 10)

    assert 1 == len(trials)
    assert ["complete", "aborted"] == [t.state for t in store.trials("study")]


def test_a_signal_passes_through_and_keeps_all(space, store):
    """KeyboardInterrupt in the third trial: it is ABORTED with the reason, two are COMPLETE, and it is raised again."""
    with pytest.raises(KeyboardInterrupt):
        searched(space, store, Law(Clock(), at_3=KeyboardInterrupt())).run(strategy(space, 10), 10)

    kept = store.trials("study")
    assert ["complete", "complete", "aborted"] == [t.state for t in kept]
    assert "stopped: KeyboardInterrupt" == kept[-1].reason


def test_a_vetoed_point_is_never_measured(space, store):
    """More sequences than tokens in a step: vLLM refuses it, so the search does not ask it."""
    tight = space._replace(knobs=(*space.knobs[:2], Knob("max_num_batched_tokens", (16, 2048), 2048, ordered=True)))
    law, told = Law(Clock()), []
    searched(tight, store, law, told=told).run(strategy(tight, 16), 16)

    assert all(c.plan.max_num_seqs <= c.plan.max_num_batched_tokens for c in law.seen)
    assert 3 == sum(event.kind == "vetoed" for event in told)
    assert 13 == len(law.seen)


def test_whoever_listens_hears_of_each_trial(space, store):
    """Start with its place, end with its figures, and the time that is left."""
    told = []
    searched(space, store, Law(Clock()), told=told).run(strategy(space, 10), 1)
    begun, ended = told

    assert begun.message.startswith("started (1 of at most 1): TP1")
    details = dict(ended.details)
    assert ("complete", 35940.0, 0) == (ended.message, details["left_s"], details["preemptions"])
    assert {"output_tok_s", "tpot_ms", "ttft_ms", "worth", "trial"} <= set(details)
    assert TrialState.COMPLETE == store.trial(details["trial"]).state


class Taught:
    """Lessons of a test: what fails with a reason rules out as many sequences or more."""

    def __init__(self):
        self.heard = []

    def learn(self, candidate, diagnosis):
        self.heard.append((candidate.plan.max_num_seqs, diagnosis))

    def objection(self, candidate):
        least = min((seqs for seqs, _ in self.heard), default=math.inf)
        return "as many did not fit" if candidate.plan.max_num_seqs >= least else ""


def test_a_failed_start_rules_out_what_must_fail_too(space, store):
    """The recommended plan does not fit: nothing with as many sequences is measured, now or after a new start."""
    law, told, taught = Law(Clock(), at_1=Infeasible("DOC-05: no room")), [], Taught()
    searched(space, store, law, told=told)._replace(lessons=taught).run(Climb(space), 12)
    again, anew = Law(Clock()), Taught()
    searched(space, store, again)._replace(lessons=anew).run(Climb(space), 12)

    refused = law.seen[0].plan.max_num_seqs
    assert [(refused, "DOC-05: no room")] == taught.heard == anew.heard
    assert all(candidate.plan.max_num_seqs < refused for candidate in law.seen[1:])
    assert "as many did not fit" in {event.message for event in told if event.kind == "vetoed"}
    assert [] == again.seen


def test_a_comparison_is_no_measurement(space, store):
    """A trial of accuracy of the same plan does not answer for its speed, and is worth nothing to the objective."""
    search = searched(space, store, Law(Clock()))
    candidate = space.candidate(space.starts()[0])
    figures = Measurement((("prompts", Interval(1.0, 1.0, 1.0)),))
    kept = QualityResult("KL divergence", Interval(0.0, 0.1, 0.2), 0.3, passed=True)
    trial = search.tried(ACCURACY, candidate, lambda _: Ended(TrialState.COMPLETE, "", figures, (kept,)))

    assert (None, {}) == (search.worth(trial), known(store.trials()))
    assert (kept,) == store.trials()[0].quality

"""What two servers are asked, and what becomes of their answers."""

import math
import os
import time

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import Plan
from vllm_advisor.profile import QualityResult, Trial, TrialState
from vllm_advisor.units import Interval
from vllm_advisor.workload import Sensitivity
from vllm_tuner import gate
from vllm_tuner.effort import EFFORTS
from vllm_tuner.quality import Compared, judge
from vllm_tuner.quality_exam import LEVELS, answers, exam, level, timed
from vllm_tuner.quality_gate import Accuracy, Gate, judged, results, same_computation, settled
from vllm_tuner.quality_tasks import Kept, Task
from vllm_tuner.serving import Bench, serving
from vllm_tuner.testing import facts, install, small_space
from vllm_tuner.trial import ACCURACY, BudgetSpent
from vllm_tuner.workloads import Shape, Synthetic


SOON = 120.0
BAD = QualityResult("KL divergence", Interval(0.5, 0.6, 0.7), 0.04, passed=False)
OPEN = QualityResult("KL divergence", Interval(0.03, 0.039, 0.05), 0.04, passed=False)
GOOD = QualityResult("KL divergence", Interval(0.01, 0.02, 0.03), 0.04, passed=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A stand-in that answers as vLLM does: (target, its context)."""
    folder = tmp_path_factory.mktemp("exam")
    space = small_space(facts(folder / "tiny"), plans=1)
    source = Synthetic(space.facts.workload, Shape(1000, 256))
    bench = Bench(space, lambda _: source, EFFORTS["quick"]._replace(waves=1), folder / "runs")
    path, os.environ["PATH"] = os.environ["PATH"], f"{install(folder / 'bin')}{os.pathsep}{os.environ['PATH']}"
    try:
        with serving(bench, space.candidate(space.starts()[0]), "a", time.monotonic() + SOON) as session:
            yield session.target, 256
    finally:
        os.environ["PATH"] = path


def test_pieces_are_spread_and_do_not_overlap(server):
    """24 of 96 tokens from the bundled text, each another one; tasks of every kind, needles within the context."""
    target, context = server
    asked = exam(target, LEVELS["quick"], context, time.monotonic() + SOON)

    assert {96} == {len(ids) for ids in asked.prompts}
    assert 15 <= len(asked.prompts) == len(set(asked.prompts)) <= 24
    assert {"needle": 6, "arithmetic": 12, "code": 12} == {
        name: sum(task.name == name for task in asked.tasks) for name in ("needle", "arithmetic", "code")
    }
    assert {int(0.8 * (context - 64))} == {task.length for task in asked.tasks if task.name == "needle"}


def test_a_short_context_gets_short_pieces(server):
    """Room for a token of answer is left."""
    asked = exam(server[0], LEVELS["quick"], 40, time.monotonic() + SOON)

    assert {24} == {len(ids) for ids in asked.prompts}


def test_the_reference_goes_on_with_the_text(server):
    """Continuations of its own come behind the pieces, and both are answered."""
    few = LEVELS["full"]._replace(own=3, prompts=4, tokens=16, shares=(), arithmetic=1, code=0)
    asked = exam(server[0], few, 256, time.monotonic() + SOON)
    said = answers(server[0], asked, time.monotonic() + SOON)

    assert [16] * 4 + [4] * 3 == [len(ids) for ids in asked.prompts]
    assert [15] * 4 + [3] * 3 == [len(positions) for positions in said.positions]
    assert ("as was said before",) == said.texts


def test_nothing_is_asked_after_the_end():
    """BudgetSpent; an error before the end is the server's."""

    def fail(_body):
        raise EngineError("no answer")

    with pytest.raises(BudgetSpent):
        timed(lambda _: {}, time.monotonic() - 1)({})
    with pytest.raises(EngineError, match="no answer"):
        timed(fail, time.monotonic() + SOON)({})


def test_levels_have_names():
    """Two of them; the full one asks more."""
    assert level("quick").requests < level("full").requests
    with pytest.raises(UsageError, match="no level of quality 'x'"):
        level("x")


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"max_num_seqs": 4, "tensor_parallel_size": 2, "enforce_eager": True}, True),
        ({"quantization": "fp8"}, False),
        ({"kv_cache_dtype": "fp8"}, False),
        ({"checkpoint": "m-fp8"}, False),
    ],
)
def test_what_computes_something_else(changes, same):
    """Weights, their format, the cache's format; batch, layout and graphs are the same computation."""
    assert same == same_computation(Plan("m"), Plan(**{"checkpoint": "m"} | changes))


def test_nan_is_kept_as_the_worst():
    """No database orders NaN: a divergence is infinite, an agreement minus infinite, and neither passes."""
    verdict = judge([Compared((math.nan,), (True,), (-1.0,), (-1.0,), (False,))] * 3, Sensitivity.NORMAL)
    kept = {result.check: result for result in results(verdict)}

    assert Interval(math.inf, math.inf, math.inf) == kept["KL divergence"].value
    assert Interval(-math.inf, -math.inf, -math.inf) == kept["top-1 agreement"].value
    assert (False, False) == (kept["KL divergence"].passed, kept["top-1 agreement"].passed)


def test_what_the_reference_guesses_does_not_count():
    """It solves one sum of three: losing that says nothing; of two of three, losing one does."""
    task = Task("sums", "1 + 1 =", "2")
    rows = [Compared((0.001,) * 8, (True,) * 8, (-1.0,) * 8, (-1.0,) * 8)] * 8

    def solved(*reference):
        both = [Kept(task, known, known and place > 0) for place, known in enumerate(reference)]
        return judge(rows, Sensitivity.NORMAL, {"sums": both}).passed

    assert (True, False) == (solved(True, False, False), solved(True, True, False))


def test_settled_verdicts_need_no_more_questions():
    """A pass, or a figure that fails whatever more samples say."""
    assert [True, True, False, True] == [settled(kept) for kept in ((GOOD,), (BAD,), (OPEN,), (OPEN, BAD))]


def test_nothing_compared_is_refused():
    """A comparison that failed has no figures; one with figures says which are beyond their limits."""
    failed = judged(Trial("s", ACCURACY, state=TrialState.FAILED, reason="it hung", id=7))
    bad = judged(Trial("s", ACCURACY, state=TrialState.COMPLETE, quality=(GOOD, BAD), id=8))

    assert ((False, 7), (False, 8)) == ((failed.passed, failed.trial), (bad.passed, bad.trial))
    assert "it could not be compared with the reference: it hung" == failed.refused
    assert ("KL divergence is 0.6 (0.5 to 0.7), limit 0.04",) == bad.reasons()
    assert gate.Outcome.KEEP is gate.decide(bad, [gate.Pair(1, 2)] * 9).outcome
    assert gate.Outcome.ADOPT is gate.decide(Accuracy((GOOD,)), [gate.Pair(1, 2)] * 9).outcome


@pytest.mark.parametrize(("first", "levels"), [((OPEN,), ["quick", "full"]), ((BAD,), ["quick"]), ((GOOD,), ["quick"])])
def test_what_quick_leaves_open_is_asked_in_full(first, levels):
    """Once; a clear answer needs no more."""
    asked = []

    class Said(Gate):
        def _at(self, _candidate, at, _end):
            asked.append(at.name)
            refused = "" if first[0].passed or at.name == "full" else "beyond"
            return Accuracy(first, refused)

    class Silent:
        def say(self, *_args, **_details):
            """Nobody listens."""

    Said(Silent(), None, None, LEVELS["quick"]).judge(None, 0.0)

    assert levels == asked

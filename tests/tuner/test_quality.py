"""Figures, intervals, limits, verdicts; what two servers say; and tasks with one right answer."""

import math
import random

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.workload import Sensitivity
from vllm_tuner.quality import (
    LIMITS,
    Compared,
    agreement,
    bootstrap,
    judge,
    mean_kl,
    perplexity,
    perplexity_ratio,
    share,
)
from vllm_tuner.quality_logprobs import Position, compare, divergence, positions, request
from vllm_tuner.quality_servers import judge_answers, take
from vllm_tuner.quality_tasks import (
    DEPTHS,
    Cell,
    Kept,
    Task,
    arithmetic,
    by_depth,
    found,
    kept,
    needles,
    reading_code,
)


def compared(kl, agreed=0.99, worse=0.0, *, count=32, positions=50, seed=0):
    chance = random.Random(seed)  # noqa: S311
    return [
        Compared(
            tuple(chance.expovariate(1 / kl) for _ in range(positions)),
            tuple(chance.random() < agreed for _ in range(positions)),
            (-2.0,) * positions,
            (-2.0 - worse,) * positions,
        )
        for _ in range(count)
    ]


def test_near_ties_may_flip():
    """Only positions whose first choice was clear count: here one of two; without any there is no agreement."""
    prompt = Compared((0.1,) * 3, (True, False, False), (-1.0,) * 3, (-1.0,) * 3, (True, True, False))

    assert 0.5 == agreement([prompt])
    assert pytest.approx(1 / 3) == agreement([prompt._replace(clear=())])
    assert math.isnan(agreement([prompt._replace(clear=(False,) * 3)]))


def test_lead_of_a_position():
    """0.6 against 0.5 is a near tie, 0.6 against 0.3 is not, and a token alone leads by everything."""
    rows = [Position(1, {1: math.log(0.6), 2: math.log(p)}) for p in (0.5, 0.3)]
    found = compare([*rows, Position(1, {1: 0.0})], [*rows, Position(1, {1: 0.0})])

    assert (False, True, True) == found.clear


def test_small_divergence_passes_everywhere():
    """What Q8_0 costs Llama 3 8B (0.0014 nats a token) is within every class's limits."""
    verdicts = [judge(compared(0.0014, 0.99), sensitivity) for sensitivity in Sensitivity]

    assert [True] * len(Sensitivity) == [v.passed for v in verdicts]
    assert (32, 1600) == (verdicts[0].prompts, verdicts[0].positions)


def test_four_bits_are_for_those_who_forgive():
    """What Q4_K_M costs (0.031 nats) with 96.5 % of clear choices kept passes for chat and fails for code."""
    passed = {s for s in Sensitivity if judge(compared(0.031, 0.965), s).passed}

    assert {Sensitivity.TOLERANT, Sensitivity.NORMAL} == passed


def test_limits_tighten_with_sensitivity():
    """Each class allows no more than the one before, in every figure."""
    rows = [LIMITS[s] for s in Sensitivity]

    assert rows == sorted(rows, key=lambda r: (-r.kl, r.agreement, -r.perplexity, r.kept))


def test_reasons_give_the_numbers():
    """A refused figure says what it is, its interval, and what is allowed."""
    verdict = judge(compared(0.5, 0.99), Sensitivity.NORMAL)

    (reason,) = verdict.reasons()
    assert reason.startswith("KL divergence is 0.49")
    assert reason.endswith("at most 0.04 is allowed")
    assert verdict.settled


def test_too_few_prompts_do_not_pass():
    """One prompt has no interval, so it can't pass, and more prompts may settle it."""
    verdict = judge(compared(0.0001, count=1), Sensitivity.NORMAL)

    assert (False, False) == (verdict.passed, verdict.settled)
    assert "more prompts could settle it" in verdict.reasons()[0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_never_passes(bad):
    """A model that gives NaN for one prompt of many is refused, not skipped."""
    prompt = Compared((bad,), (True,), (-1.0,), (-bad,))

    assert not judge([*compared(0.001), prompt], Sensitivity.TOLERANT).passed


def test_bootstrap_covers_the_truth():
    """The 95 % interval of 60 sets of 30 exponential values holds the mean in 80 % or more (small sets fall short)."""
    chance = random.Random(3)  # noqa: S311
    intervals = [bootstrap([chance.expovariate(1.0) for _ in range(30)], lambda x: sum(x) / len(x)) for _ in range(60)]

    assert 48 <= sum(low <= 1 <= high for low, _, high in intervals) < 60


def test_nan_has_no_interval():
    """One NaN among many rows is not hidden by resamples that miss it."""
    rows = [0.0] * 7 + [math.nan]

    for seed in range(20):
        assert all(math.isnan(end) for end in bootstrap(rows, lambda x: sum(x) / len(x), seed=seed))


def test_bootstrap_repeats():
    """The same rows and seed give the same interval."""
    rows = compared(0.01)

    assert bootstrap(rows, mean_kl) == bootstrap(rows, mean_kl)


def test_perplexity_of_known_tokens():
    """A quarter each is a perplexity of 4; 0.1 nats worse is a ratio of e^0.1."""
    assert pytest.approx(4) == perplexity([math.log(0.25)] * 3)
    assert pytest.approx(math.exp(0.1)) == perplexity_ratio(compared(0.01, worse=0.1))


def row(table):
    return {str(t): {"logprob": lp, "rank": n, "decoded_token": "x"} for n, (t, lp) in enumerate(table.items(), 1)}


def test_prompt_logprobs_are_read():
    """vLLM's answer: None for the first token, then a table from token id to log-probability."""
    body = {"choices": [{"text": " a", "prompt_logprobs": [None, row({5: -0.1, 7: -3.0})]}]}

    assert (Position(7, {5: -0.1, 7: -3.0}),) == positions(body, [1, 7])
    assert 5 == positions(body, [1, 7])[0].best
    assert {"prompt": [1, 7], "prompt_logprobs": 20} == {
        k: request("m", [1, 7])[k] for k in ("prompt", "prompt_logprobs")
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"prompt_logprobs": None}]},
        {"choices": [{"prompt_logprobs": [None]}]},
        {"choices": [{"prompt_logprobs": [None, None]}]},
        {"choices": [{"prompt_logprobs": [None, {"9": {"logprob": -1.0}}]}]},
        {"choices": [{"prompt_logprobs": [None, {"7": {"logprob": math.nan}}]}]},
    ],
)
def test_other_answers_are_engine_errors(body):
    """Nothing, too little, the wrong token, NaN: one line, not a traceback."""
    with pytest.raises(EngineError, match="prompt_logprobs"):
        positions(body, [1, 7])


def test_divergence_of_all_tokens_is_exact():
    """With the whole vocabulary named it is KL itself: ln 2 × 0.5 + ln(2/3) × 0.5 for (½, ½) against (¼, ¾)."""
    p, q = {0: math.log(0.5), 1: math.log(0.5)}, {0: math.log(0.25), 1: math.log(0.75)}

    assert pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3)) == divergence(p, q)
    assert 0 == divergence(p, p)


def test_divergence_of_some_tokens_is_a_lower_bound():
    """Tokens that only one side names go into the rest, which can only hide a difference."""
    chance = random.Random(5)  # noqa: S311
    for _ in range(50):
        p, q = ([chance.random() for _ in range(12)] for _ in range(2))
        p, q = ({t: math.log(x / sum(r)) for t, x in enumerate(r)} for r in (p, q))
        some = divergence({t: p[t] for t in range(8)}, {t: q[t] for t in range(3, 12)})

        assert 0 <= some <= divergence(p, q) + 1e-12


def test_servers_must_see_the_same_tokens():
    """Another tokenizer makes log-probabilities of other things."""
    with pytest.raises(EngineError, match="differently"):
        compare([Position(1, {1: -0.5})], [Position(2, {2: -0.5})])


class FakeServer:
    """Answers as vLLM does: log-probabilities that are off by `shift`, and texts from a table."""

    def __init__(self, shift=0.0, text="42"):
        self.shift, self.text = shift, text

    def __call__(self, body):
        if "prompt_logprobs" not in body:
            return {"choices": [{"text": self.text}]}
        table = {7: math.log(0.6) - self.shift, 8: math.log(0.3)}
        return {"choices": [{"prompt_logprobs": [None, *(row(table) for _ in body["prompt"][1:])]}]}


def test_two_servers_are_judged():
    """Equal servers pass; one whose likeliest token lost 0.5 nats, and that forgets the answer, does not."""
    prompts, tasks = [[7] * 9] * 6, (Task("code", "6 × 7 =", "42"),) * 4
    answers = [take(FakeServer(*args), "m", prompts, tasks) for args in ((), (), (0.5, "41"))]
    same, other = (judge_answers(answers[0], answers[n], Sensitivity.NORMAL, tasks) for n in (1, 2))

    assert (True, False) == (same.passed, other.passed)
    assert ["KL divergence", "top-1 agreement", "perplexity ratio", "code kept"] == [f.name for f in same.figures]
    assert {"KL divergence", "perplexity ratio", "code kept"} == {f.name for f in other.figures if not f.passed}


def test_completion_without_text_is_an_engine_error():
    """A proxy's answer that has no choices."""
    with pytest.raises(EngineError, match="completion"):
        take(lambda _: {"error": "x"}, "m", [], (Task("code", "1 + 1 =", "2"),))


FILLER = "The sea was grey. A gull cried over the pier! Who had seen the boat? Nobody answered."


def words(text):
    return len(text.split())


def test_needles_lie_where_they_should():
    """A needle at each depth, the prompt as long as asked (within a sentence), the question last."""
    tasks = needles(FILLER, words, [200], repeats=1)
    places = [t.prompt.index(t.answer) / len(t.prompt) for t in tasks]

    assert list(DEPTHS) == [t.depth for t in tasks]
    assert places == sorted(places)
    assert places[0] < 0.1
    assert 0.8 < places[-1]
    assert all(190 <= words(t.prompt) <= 200 for t in tasks)
    assert all(1 == t.prompt.count(t.answer) for t in tasks)


def test_needles_are_shorter_than_a_tiny_limit_allows():
    """A length below the question's own still asks: there is no hay then."""
    (task,) = needles(FILLER, words, [5], depths=(0.5,), repeats=1)

    assert "secret code" in task.prompt
    with pytest.raises(ValueError, match="no filler"):
        needles("", words, [5])


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (" 48213.", True),
        ("48,213", True),
        (" 4821", False),
        ("I don't know", False),
        ("12 or 48213", False),
        ("", False),
    ],
)
def test_first_number_counts(answer, right):
    """The first number that the model writes is its answer."""
    assert right == found(Task("needle", "", "48213"), answer)


def test_tasks_are_right_and_repeatable():
    """The answers of arithmetic and of programs are what Python computes from the prompt."""
    for task in arithmetic(20):
        *solved, asked = task.prompt.splitlines()

        assert 3 == len(solved)
        assert int(task.answer) == eval(asked.removesuffix(" ="))  # noqa: S307  our own text
    assert arithmetic(5, seed=1) == arithmetic(5, seed=1) != arithmetic(5, seed=2)


def test_programs_print_their_answers(capsys):
    """Each program, run here (it is ours), prints what its task expects."""
    for task in reading_code(12):
        exec(task.prompt.split("# Output: 8\n\n")[1].split("# Output:")[0])  # noqa: S102  our own text

        assert task.answer == capsys.readouterr().out.strip()


def test_only_solved_tasks_can_be_lost():
    """What the reference could not do either is no loss of the candidate."""
    task = Task("needle", "", "1", 1000, 0.5)
    lost = [Kept(task, reference=True, candidate=False)] * 5 + [Kept(task, reference=True, candidate=True)] * 5
    never = [Kept(task, reference=False, candidate=False)] * 10
    rows = compared(0.001)

    assert judge(rows, Sensitivity.RETRIEVAL, {"needle": never}).passed
    assert ["needle kept"] == [
        f.name for f in judge(rows, Sensitivity.RETRIEVAL, {"needle": lost}).figures if not f.passed
    ]
    assert (Cell(1000, 0.5, 20, 10, 5),) == by_depth([*lost, *never])
    (refused,) = judge(rows, Sensitivity.RETRIEVAL, {"needle": lost}).reasons()
    assert refused.endswith("; lost at 1,000 tokens, depth 0.5: 5 of 10")
    assert 0.5 == share([True, False])


def test_missing_answers_are_refused():
    """Three tasks and two answers don't belong together."""
    with pytest.raises(ValueError, match="zip"):
        kept([Task("a", "", "1")] * 3, ["1"] * 3, ["1"] * 2)

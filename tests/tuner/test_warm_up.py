"""What a warm-up consists of: derived from a plan, the cheapest step first, nothing that the server would refuse."""

import pytest

from vllm_advisor.catalog import gpus
from vllm_advisor.plan import Plan
from vllm_tuner.calibrate.warm_up import ANSWER, PATHS, Ask, Limits, buckets, limits, longest_prompt, steps


H100 = gpus.find("H100")
SMALL = Limits(max_model_len=1024, max_num_seqs=4, max_num_batched_tokens=512)


def named(found, kind):
    return [step.name for step in found if step.kind == kind]


def lengths(found, kind):
    return sorted(step.asks[0].input_tokens for step in found if step.kind == kind)


def test_lengths_are_powers_of_two_each_also_odd():
    """16 to a whole step's tokens, doubled each time, and each three less: Triton builds both kinds."""
    expected = [13, 16, 29, 32, 61, 64, 125, 128, 253, 256, 509, 512]

    assert expected == lengths(steps(SMALL), "length")


def test_long_prompts_come_in_chunks():
    """A little more than one step, four steps, and the longest prompt that leaves room for an answer."""
    assert [528, 1020] == lengths(steps(SMALL), "chunk")
    assert [2064, 8192, 32764] == lengths(steps(Limits(32768, 8, 2048)), "chunk")
    assert [] == lengths(steps(Limits(1024, 4, 2048)), "chunk")


def test_longest_prompt_fits_with_its_answer():
    """No step asks for more than the context, whatever the limits."""
    for bounds in (
        SMALL,
        Limits(20, 1, 2048),
        Limits(24, 3, 16),
        Limits(131072, 256, 8192, (1, 2, 4), 2),
        Limits(5, 2, 8),
    ):
        asks = [ask for step in steps(bounds) for ask in step.asks]

        assert asks
        assert all(ask.input_tokens + ask.output_tokens <= bounds.max_model_len for ask in asks), bounds
        assert all(ask.input_tokens > 0 for ask in asks)


def test_every_graph_that_decoding_reaches_is_met():
    """vLLM's own sizes for the plan up to the limit of sequences, and the full batch; eager: powers of two."""
    plan = Plan("m", max_num_seqs=20, max_num_batched_tokens=2048, max_model_len=4096)
    eager = Plan("m", max_num_seqs=20, max_num_batched_tokens=2048, max_model_len=4096, enforce_eager=True)

    assert (1, 2, 4, 8, 16, 24, 32, 40) == limits(plan, H100).graph_sizes
    assert [f"{n} at once" for n in (1, 2, 4, 8, 16, 20)] == named(steps(limits(plan, H100)), "batch")
    assert () == limits(eager, H100).graph_sizes == limits(plan, gpus.find("cpu")).graph_sizes
    assert [f"{n} at once" for n in (1, 2, 4, 8, 16, 20)] == named(steps(limits(eager, H100)), "batch")
    assert [f"{n} at once" for n in (3, 12, 20)] == named(steps(limits(plan, H100, (12, 3, 64))), "batch")


def test_batch_is_one_request_with_as_many_answers():
    """Answers to one prompt enter the batch together; with two engines twice as many; one alone may be greedy."""
    found = {step.name: step.asks for step in steps(SMALL._replace(engines=2)) if step.kind == "batch"}

    assert [(8, "sampled")] == [(ask.answers, ask.path) for ask in found["4 at once"]]
    one = {step.name: step.asks for step in steps(SMALL) if step.kind == "batch"}["1 at once"]
    assert [(1, "greedy")] == [(ask.answers, ask.path) for ask in one]


def test_answers_outlast_the_prompts_of_a_large_batch():
    """Sequences whose prompts take many steps still decode together: the answer is longer by those steps."""
    (step,) = [s for s in steps(Limits(4096, 256, 512)) if s.name == "256 at once"]

    assert 8 + 256 * 16 // 512 == step.asks[0].output_tokens


def test_a_full_prompt_joins_a_decoding_batch():
    """Two requests in flight together; none where one sequence is all that fits."""
    (mixed,) = [step for step in steps(SMALL) if step.kind == "mixed"]

    assert (Ask(16, 64), Ask(512, ANSWER)) == mixed.asks
    assert [] == named(steps(SMALL._replace(max_num_seqs=1)), "mixed")


def test_cheapest_first():
    """Costs rise, so that a limit of time leaves out the dearest; equal plans give equal warm-ups."""
    found = steps(Limits(131072, 256, 8192, tuple(range(8, 513, 8))))
    costs = [step.cost for step in found]

    assert sorted(costs) == costs
    assert "length" == found[0].kind
    assert ("chunk", "131068 tokens") == (found[-1].kind, found[-1].name)
    assert found == steps(Limits(131072, 256, 8192, tuple(range(8, 513, 8))))


def test_paths_are_those_that_were_asked_for():
    """Each once, in any order; all unless told."""
    assert ["logprobs", "sampled"] == named(steps(SMALL, ("sampled", "logprobs", "sampled")), "path")
    assert sorted(PATHS) == sorted(named(steps(SMALL), "path"))
    assert [] == named(steps(SMALL, ()), "path")


@pytest.mark.parametrize(("context", "expected"), [(1024, (16, 64, 256, 1020)), (16, (12,)), (3, (1,))])
def test_buckets_end_with_the_longest_prompt(context, expected):
    """Four times as long each, then what the context leaves."""
    bounds = Limits(context, 4, 512)

    assert expected == buckets(bounds)
    assert expected[-1] == longest_prompt(bounds)

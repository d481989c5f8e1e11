"""What a failed start teaches: points that must fail the same way are not tried, and no others are left out."""

import os
import time
from dataclasses import replace

import pytest

from vllm_advisor.doctor.failures import FAILURES
from vllm_advisor.plan import Plan
from vllm_tuner import lessons, serving
from vllm_tuner.effort import EFFORTS
from vllm_tuner.lessons import Lessons
from vllm_tuner.serving import Bench
from vllm_tuner.testing import LIMIT, facts, install, small_space
from vllm_tuner.trial import Candidate, Infeasible
from vllm_tuner.workloads import Shape, Synthetic


PLAN = Plan("org/m", max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=4096, gpu_memory_utilization=0.9)
SPECULATIVE = ("--speculative-config", '{"method": "ngram"}')


def taught(diagnosis, flags=(), **changes):
    """Lessons of one failure of the plan with changes."""
    learnt = Lessons()
    learnt.learn(Candidate(replace(PLAN, **changes), flags), diagnosis)
    return learnt


def pruned(learnt, flags=(), **changes):
    return bool(learnt.objection(Candidate(replace(PLAN, **changes), flags)))


def test_nothing_is_objected_before_anything_failed():
    """An empty search tries everything; having learnt nothing is not the same as having no lessons."""
    assert not pruned(Lessons())
    assert Lessons()


@pytest.mark.parametrize(
    ("number", "worse", "better"),
    [
        ("DOC-01", {"max_model_len": 8192}, {"max_model_len": 2048}),
        ("DOC-01", {"gpu_memory_utilization": 0.8}, {"gpu_memory_utilization": 0.95}),
        ("DOC-02", {"max_num_batched_tokens": 8192}, {"max_num_batched_tokens": 2048}),
        ("DOC-05", {"max_num_batched_tokens": 8192}, {"max_num_batched_tokens": 2048}),
        ("DOC-05", {"max_num_seqs": 128}, {"enforce_eager": True}),
        ("DOC-06", {"max_num_seqs": 128}, {"enforce_eager": True}),
        ("DOC-06", {"gpu_memory_utilization": 0.95}, {"gpu_memory_utilization": 0.85}),
        ("DOC-07", {"gpu_memory_utilization": 0.95}, {"max_num_seqs": 32}),
        ("DOC-09", {"gpu_memory_utilization": 0.95}, {"gpu_memory_utilization": 0.85}),
        ("DOC-11", {"max_num_seqs": 128}, {"max_num_seqs": 32}),
        ("DOC-63", {"max_model_len": 8192}, {"max_model_len": 2048}),
        ("DOC-71", {"max_num_batched_tokens": 2048}, {"max_num_batched_tokens": 8192}),
    ],
)
def test_what_asks_for_more_fails_again_and_what_asks_for_less_is_tried(number, worse, better):
    """One step in the bad direction is pruned, the same point too, one in the good direction is not."""
    learnt = taught(f"{number}: why")

    assert (True, True, False) == (pruned(learnt), pruned(learnt, **worse), pruned(learnt, **better))


@pytest.mark.parametrize("number", [rule.id for rule in lessons.RULES if rule.more or rule.less])
def test_another_checkpoint_is_another_question(number):
    """Whatever failed: only a refused number of ranks is a fact of the machine, and only a limit one of the command."""
    assert (number in ("DOC-34", "DOC-71")) == pruned(taught(f"{number}: why"), checkpoint="org/smaller")


def test_a_smaller_cache_dtype_may_fit_and_a_larger_one_does_not():
    """FP8 failed: 16 bits fail too; 16 bits failed: FP8 may do; a dtype that we cannot order says nothing."""
    assert pruned(taught("DOC-01: x", kv_cache_dtype="fp8"), kv_cache_dtype="auto")
    assert not pruned(taught("DOC-01: x", kv_cache_dtype="auto"), kv_cache_dtype="fp8")
    assert not pruned(taught("DOC-01: x", kv_cache_dtype="turbo"), kv_cache_dtype="auto")


def test_weights_that_do_not_fit_fit_on_more_devices_alone():
    """Two ways failed: one fails, four are tried."""
    learnt = taught("DOC-04: x", tensor_parallel_size=2)

    assert (True, False) == (pruned(learnt), pruned(learnt, tensor_parallel_size=4))
    assert pruned(learnt, gpu_memory_utilization=0.5)


def test_fewer_graphs_may_fit_and_a_draft_never_helps():
    """The flag counts as a size, and what is loaded beside the model as more of it."""
    learnt = taught("DOC-06: x", flags=(("--max-cudagraph-capture-size", 64),))

    assert not pruned(learnt, flags=(("--max-cudagraph-capture-size", 32),))
    assert pruned(learnt)  # without the flag up to 128 are captured
    assert pruned(taught("DOC-05: x"), flags=(SPECULATIVE,))
    assert not pruned(taught("DOC-05: x", flags=(SPECULATIVE,)))


def test_a_fixed_cache_and_a_share_are_not_compared():
    """Bytes say nothing of a share."""
    learnt = taught("DOC-09: x", kv_cache_memory_bytes=1 << 30)

    assert (False, True) == (pruned(learnt), pruned(learnt, kv_cache_memory_bytes=2 << 30))


def test_a_refused_flag_is_not_typed_again():
    """Where the parser names one of the candidate's own flags; a flag of somebody else teaches nothing."""
    learnt = taught(f"DOC-67: this vLLM version has no {SPECULATIVE[0]}", flags=(SPECULATIVE,))

    assert (False, True) == (pruned(learnt), pruned(learnt, flags=(SPECULATIVE,)))
    assert 0 == taught("DOC-67: this vLLM version has no --other", flags=(SPECULATIVE,)).number


@pytest.mark.parametrize("said", ["DOC-03: busy", "DOC-12: x", "DOC-30: x", "DOC-41: x", "DOC-50: killed", "odd", ""])
def test_what_time_could_mend_teaches_nothing(said):
    """A busy device, a lost link, a taken port, a killed process, and what nobody diagnosed."""
    assert 0 == taught(said).number


def test_every_rule_is_one_of_doctor_s_and_gives_its_reason():
    """Ids and causes; a trait that does not exist would raise here."""
    known = {failure.id for failure in FAILURES}
    names = set(lessons.traits(Candidate(PLAN)))
    for rule in lessons.RULES:
        assert rule.id in known
        assert rule.why
        assert names >= {*rule.same, *rule.more, *rule.less}


def test_an_objection_names_the_failure_and_its_reason():
    """So that a person can follow."""
    said = taught("DOC-05: x").objection(Candidate(replace(PLAN, max_num_batched_tokens=8192)))

    assert said.startswith("DOC-05 again, as with TP1, 64 seqs, 4096 tokens: a step of as many tokens")


def test_a_child_that_dies_of_memory_saves_the_starts_above_it(tmp_path, monkeypatch):
    """1. LIMIT 1000, 2. a start of 2,048 tokens fails. Result: all larger steps are pruned, the smaller ones run."""
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(LIMIT, "1000")
    space = small_space(facts(tmp_path / "tiny"), plans=1)
    source = Synthetic(space.facts.workload, Shape(1000, 256))
    bench = Bench(space, lambda _: source, EFFORTS["quick"]._replace(waves=1), tmp_path / "runs")
    start = space.candidate(space.starts()[0])
    at = {size: start._replace(plan=replace(start.plan, max_num_batched_tokens=size)) for size in (512, 2048, 4096)}
    learnt = Lessons()

    with pytest.raises(Infeasible) as failed:
        serving.measure(bench, at[2048], "a", time.monotonic() + 60, None)
    learnt.learn(at[2048], failed.value.reason)

    assert "DOC-05" in failed.value.reason
    assert ("", True) == (learnt.objection(at[512]), learnt.objection(at[4096]).startswith("DOC-05 again"))
    assert serving.measure(bench, at[512], "b", time.monotonic() + 60, None).measurement.repeats

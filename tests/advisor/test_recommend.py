"""The engine as a whole: the issue's own figures, the ranking, restrictions, and what happens when nothing fits."""

from itertools import pairwise

import pytest

from vllm_advisor.candidates import Restrictions, layouts
from vllm_advisor.catalog import gpus, models
from vllm_advisor.facts import Facts
from vllm_advisor.memory.budget import budget
from vllm_advisor.model.kv import kv_bytes_per_token
from vllm_advisor.plan import Plan
from vllm_advisor.recommend import recommend
from vllm_advisor.units import GIB
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS, Objective, Sla, Workload


def facts(name="Qwen/Qwen3-30B-A3B", machine="8xH100", vllm="0.33.0", **load):
    workload = Workload(**load) if load else PRESETS["chat"]
    return Facts(gpus.node(machine), models.find(name), workload, surface.load(vllm))


def answer(asked, restrictions=None, top=5):
    return recommend(asked, models.siblings(asked.model), restrictions, top)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("deepseek-ai/DeepSeek-V3", 70_272), ("meta-llama/Llama-3.1-8B", 131_072), ("google/gemma-3-27b-it", 81_920)],
)
def test_kv_bytes_a_token_in_bf16(name, expected):
    """MLA keeps 576 x 61 x 2; Llama 128 KiB; Gemma's sliding layers do not grow with the context."""
    assert expected == kv_bytes_per_token(models.find(name), 2)


def test_gpt_oss_120b_weighs_what_its_index_says():
    """65,248,815,744 bytes in its safetensors index: 60.8 GiB, within one percent."""
    assert models.find("openai/gpt-oss-120b").weight_bytes == pytest.approx(60.8 * GIB, rel=0.01)


@pytest.mark.parametrize("vllm", ["0.24.0", "0.33.0"])
def test_minimax_m3_in_fp8_does_not_fit_four_80_gb_cards(vllm):
    """The seed text serves it with fp8 weights on four cards: the weights alone exceed them, and the answer says so."""
    asked = facts("MiniMaxAI/MiniMax-M3", "4xH100", vllm)
    found = answer(asked, Restrictions(quantization="fp8_per_tensor", siblings=False))

    assert () == found.plans
    assert all(any("weights need" in f.message for f in r.findings) for r in found.rejected if r.budget.weights)
    assert found.misses


def test_minimax_m3_in_fp8_fits_eight_h200():
    """The same weights on eight larger cards have a plan, with the block size that its sparse attention needs."""
    asked = facts(
        "MiniMaxAI/MiniMax-M3", "8xH200", input_tokens=8000, output_tokens=1000, concurrency=64, context=131_072
    )
    argv = answer(asked).plans[0].command.argv

    assert ("--block-size", "128") in pairwise(argv)
    assert ("--max-model-len", "131072") in pairwise(argv)


def test_plans_are_ranked_by_their_score():
    """Best first, and the first has nothing to trade."""
    plans = answer(facts()).plans

    assert sorted((p.score for p in plans), reverse=True) == [p.score for p in plans]
    assert "" == plans[0].trade
    assert all(p.trade for p in plans[1:])


def test_the_emitted_batch_is_the_predicted_batch():
    """What runs at most is what the speed was predicted for: a replica's share of the load, up to one graph step."""
    best = answer(facts(input_tokens=1000, output_tokens=200, concurrency=64)).plans[0]
    share = 64 / best.plan.data_parallel_size

    assert share <= best.plan.max_num_seqs < share + 8
    assert str(best.plan.max_num_seqs) in best.command.argv


def test_objectives_disagree_where_they_should():
    """Throughput gets as many tokens as latency's choice or more, latency as fast an answer, but for a hair each."""
    load = {"input_tokens": 2000, "output_tokens": 500, "concurrency": 128}
    fast = answer(facts(**load, objective=Objective.LATENCY)).plans[0].estimate
    wide = answer(facts(**load, objective=Objective.THROUGHPUT)).plans[0].estimate

    assert 1.01 * wide.output_tok_s.mid >= fast.output_tok_s.mid
    assert fast.ttft_ms.mid + 500 * fast.tpot_ms.mid <= 1.01 * (wide.ttft_ms.mid + 500 * wide.tpot_ms.mid)


def test_an_impossible_sla_rejects_with_the_numbers():
    """A limit that even the optimistic estimate misses is a veto that names both figures."""
    found = answer(facts(sla=Sla(tpot_ms=0.01)))

    assert () == found.plans
    assert any(f.rule == "SLA-02" and f.level == "veto" for r in found.rejected for f in r.findings)


def test_restrictions_hold():
    """What the user fixed is in every plan, proposed or rejected."""
    fixed = Restrictions(
        kv_cache_dtype="auto", tensor_parallel_size=2, expert_parallel=False, siblings=False, quantization="none"
    )
    found = answer(facts(), fixed)
    plans = [p.plan for p in (*found.plans, *found.rejected)]

    assert plans
    assert {("auto", 2, False, None, "Qwen/Qwen3-30B-A3B")} == {
        (p.kv_cache_dtype, p.tensor_parallel_size, p.enable_expert_parallel, p.quantization, p.checkpoint)
        for p in plans
    }


def test_a_context_nobody_asked_for_shrinks_to_what_fits():
    """Llama-3.1-8B at its own 131,072 tokens does not fit an L4 in BF16: vLLM finds the length, we say about which."""
    asked = facts("meta-llama/Llama-3.1-8B-Instruct", "L4")
    plan = answer(asked, Restrictions(quantization="none", siblings=False, kv_cache_dtype="auto")).plans[0]

    assert plan.plan.auto_max_model_len
    assert plan.plan.max_model_len < 131_072
    assert ("--max-model-len", "auto") in pairwise(plan.command.argv)


def test_a_context_that_was_asked_for_is_never_shortened():
    """The same machine with the context asked for answers no, and what would make it fit was checked."""
    asked = facts("meta-llama/Llama-3.1-8B-Instruct", "L4", context=131_072)
    found = answer(asked, Restrictions(quantization="none", siblings=False, kv_cache_dtype="auto"))

    assert () == found.plans
    assert all(r.budget.fits for miss in found.misses for r in miss.remedies)
    assert any(miss.remedies for miss in found.misses)


def test_several_nodes_keep_tp_inside_a_node():
    """Tensor parallelism never crosses the network; PP or DP does."""
    asked = facts("deepseek-ai/DeepSeek-V3.1", "2x8xH100")
    plans = answer(asked).plans

    assert plans
    assert all(p.plan.tensor_parallel_size <= 8 for p in plans)
    assert all("--nnodes" in p.command.argv for p in plans if p.plan.world_size > 8)


def test_dcp_is_offered_where_kv_heads_run_out():
    """MLA keeps one latent on each rank: with a long context, shares of the sequence are worth a look."""
    asked = facts("deepseek-ai/DeepSeek-V3.1", "8xH200", context=131_072)

    assert 8 in {layout.dcp for layout in layouts(asked, asked.model, Restrictions())}


def test_a_gpu_that_others_use_gets_less():
    """vLLM refuses to start where less is free than it asks for: the utilization follows what is free."""
    asked = facts("Qwen/Qwen3-8B", "H100")
    gpu = asked.node.gpus[0]
    shared = type(asked.node)(
        gpus=(type(gpu)(**{**{f: getattr(gpu, f) for f in gpu.__slots__}, "free_bytes": 60 * GIB}),)
    )
    best = answer(asked._replace(node=shared)).plans[0]

    assert best.budget.requested <= 60 * GIB
    assert "--gpu-memory-utilization" in best.command.argv


def test_amd_gets_its_switch():
    """MI300X without AITER is several times slower: the variable comes along."""
    best = answer(facts("Qwen/Qwen3-32B", "8xMI300X")).plans[0]

    assert ("VLLM_ROCM_USE_AITER", "1") in best.command.env


def test_code_and_maths_stay_in_full_precision_where_it_fits():
    """The sensitive preset on a roomy machine proposes the checkpoint as it was trained."""
    asked = facts("Qwen/Qwen3-32B", "2xH100")._replace(workload=PRESETS["code"])
    best = answer(asked).plans[0]

    assert ("Qwen/Qwen3-32B", None, "auto") == (best.plan.checkpoint, best.plan.quantization, best.plan.kv_cache_dtype)


def test_memory_is_the_same_alone_as_in_the_answer():
    """The budget that is shown is the budget of exactly the plan that is shown."""
    asked = facts()
    best = answer(asked).plans[0]

    assert best.budget == budget(best.model, best.plan, asked.node, asked.vllm)
    assert isinstance(best.plan, Plan)

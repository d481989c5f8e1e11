"""Every rule fires where it should and is silent where it should not; the engine never stops at the first."""

from __future__ import annotations

import dataclasses

import pytest

from vllm_advisor.facts import Case, Facts, MemoryBudget
from vllm_advisor.hardware import Gpu, Link, Node, Topology, Vendor
from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.rules.engine import judge
from vllm_advisor.rules.table import RULES
from vllm_advisor.units import GIB, Interval
from vllm_advisor.vllm import surface
from vllm_advisor.workload import Objective, Sensitivity, Workload


def changed(value, **fields):
    """A copy with other fields, of a dataclass or a named tuple."""
    return value._replace(**fields) if hasattr(value, "_replace") else dataclasses.replace(value, **fields)


FULL = CacheGroup("full", tuple(range(32)), q_heads=32, kv_heads=8, k_dim=128, v_dim=128)
SINKS = changed(FULL, k_dim=64, v_dim=64, sinks=True)
LATENT = CacheGroup("mla", tuple(range(61)), q_heads=128, kv_heads=1, k_dim=576)
INDEXER = CacheGroup("indexer", tuple(range(61)), kv_heads=1, k_dim=132, fixed_bytes_per_token=132)
COMPRESSED = CacheGroup("compressed", tuple(range(61)), q_heads=64, kv_heads=1, k_dim=512, tokens_per_entry=4)
STATE = CacheGroup("state", (0, 1), state_shapes=((1000, 2, True),))
MOE = Moe(128, 8, 0, 1536, tuple(range(32)))
GPT_OSS = changed(MOE, activation="swigluoai")
FP8 = Quantization("fp8", "fp8_block", 8, 8, block=(128, 128))
AWQ = Quantization("awq", "int4", 4, 16, group_size=128)
ODD = changed(MOE, num_experts=60)
MXFP4 = Quantization("mxfp4", "mxfp4", 4, 16, group_size=32)
NVFP4 = Quantization("modelopt", "nvfp4", 4, 4, group_size=16)
W4A16 = Quantization("modelopt", "nvfp4_mixed", 4, 16, group_size=16)
SMALL = (WeightGroup("mlp", 1_900_000_000, 3_800_000_000, "column"),)
LARGE = (WeightGroup("mlp", 2_100_000_000, 4_200_000_000, "column"),)
WIDE_KEYS = changed(FULL, k_dim=192)
AITER = (("VLLM_ROCM_USE_AITER", "1"),)


def gpu(arch="sm90", *, gib=80, **other):
    """A device of an architecture; only what rules read."""
    vendor = Vendor.NVIDIA if arch.startswith("sm") else Vendor.AMD if arch.startswith("gfx") else Vendor.CPU
    return Gpu(f"test {arch}", vendor, arch, gib * GIB, 3.35e12, 989.0, **other)


def nvlinked(n, size):
    """All pairs of n devices: NVLink inside groups of `size`, PCIe across."""
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    return Topology(
        tuple(Link(a, b, *(("nvlink", 450.0) if a // size == b // size else ("pcie", 32.0))) for a, b in pairs)
    )


def node(arch="sm90", n=8, *, island=8, count=1, **other):
    """n equal devices, fast links in groups of `island`."""
    return Node((gpu(arch, **other),) * n, nvlinked(n, island), count=count)


def model(**other):
    """A dense BF16 model of 32 layers with 8 KV heads."""
    base = {
        "name": "acme/model", "architecture": "LlamaForCausalLM", "model_type": "llama", "dtype": "bfloat16",
        "hidden_size": 4096, "num_layers": 32, "vocab_size": 128256, "max_position": 131072, "attention_heads": 32,
        "kv_heads": 8, "caches": (FULL,), "weights": (), "intermediate_size": 14336, "exact_weight_bytes": 1,
        "provenance": "verbatim",
    }  # fmt: skip
    return ModelSpec(**(base | other))


def budget(**other):
    """A comfortable fit on 80 GiB."""
    base = {
        "total": 80 * GIB, "requested": 73 * GIB, "weights": 16 * GIB, "activation": Interval(GIB, GIB, GIB),
        "graphs": Interval(GIB, GIB, GIB), "non_torch": Interval(GIB, GIB, GIB),
        "kv_cache": Interval(50.0 * GIB, 54.0 * GIB, 56.0 * GIB), "kv_bytes_per_token": 131072.0, "block_size": 16,
        "num_blocks": 27_000, "kv_tokens": 440_000, "max_concurrency": 50.0, "max_context": 440_000, "verdict": "fits",
    }  # fmt: skip
    return MemoryBudget(**(base | other))


def case(*, vllm="0.33.0", on=None, of=None, load=None, fits=None, **plan):
    """A case that no rule but the harmless ones has anything to say about, changed by the arguments."""
    facts = Facts(on or node(), of or model(), Workload(**(load or {})), surface.load(vllm))
    return Case(facts, Plan(**({"checkpoint": facts.model.name, "max_model_len": 8192} | plan)), fits or budget())


def untabled(known):
    """The same case under a release of whose kernels no table was made."""
    facts = known.facts
    bare = facts.vllm._replace(version="0.31.9", release=(0, 31, 9), more={})
    return Case(Facts(facts.node, facts.model, facts.workload, bare), known.plan, known.budget)


def moe_model(**other):
    """A mixture of 128 experts."""
    return model(**({"architecture": "Qwen3MoeForCausalLM", "model_type": "qwen3_moe", "moe": MOE} | other))


def mla_model(**other):
    """A model with multi-head latent attention."""
    return model(**({"architecture": "DeepseekV3ForCausalLM", "model_type": "deepseek_v3", "attention_heads": 128,
                     "caches": (LATENT,)} | other))  # fmt: skip


LONG = {"input_tokens": 100_000, "output_tokens": 1000}
SIBLINGS = (("acme/model-FP8", "fp8_block"),)
COPY = {"name": "acme/model-4bit", "base_model": "acme/model"}

# id → (a case where it fires, a case that differs in what matters and where it is silent)
CASES = {
    "MEM-01": (case(fits=budget(weights=90 * GIB, verdict="does not fit")), case()),
    "MEM-02": (
        case(fits=budget(verdict="does not fit", max_context=4096)),
        case(fits=budget(weights=90 * GIB, verdict="does not fit")),
    ),
    "MEM-03": (case(fits=budget(verdict="cannot tell", limits=("layer kind rwkv",))), case()),
    "MEM-04": (case(fits=budget(kv_cache=Interval(0.5 * GIB, 54.0 * GIB, 56.0 * GIB))), case()),
    "MEM-05": (case(fits=budget(kv_tokens=20_000)), case(fits=budget(kv_tokens=60_000))),
    "MEM-06": (case(on=node(free_bytes=60 * GIB)), case(on=node(free_bytes=79 * GIB))),
    "MEM-07": (case(), case(fits=budget(kv_tokens=2000))),
    "MEM-08": (
        case(fits=budget(verdict="does not fit", limits=("the host has too little",))),
        case(fits=budget(verdict="does not fit", max_context=100)),
    ),
    "PAR-01": (case(tensor_parallel_size=3), case(tensor_parallel_size=4)),
    "PAR-02": (
        case(of=model(caches=(changed(FULL, kv_heads=6),)), tensor_parallel_size=4),
        case(tensor_parallel_size=4),
    ),
    "PAR-03": (case(on=node(n=16, island=16), tensor_parallel_size=16), case(tensor_parallel_size=8)),
    "PAR-04": (
        case(of=mla_model(), tensor_parallel_size=8),
        case(of=mla_model(), tensor_parallel_size=8, decode_context_parallel_size=8),
    ),
    "PAR-05": (
        case(vllm="0.24.0", of=moe_model(quantization=FP8), data_parallel_size=8),
        case(vllm="0.24.0", of=moe_model(quantization=FP8), tensor_parallel_size=8, enable_expert_parallel=True),
    ),
    "PAR-06": (
        case(of=moe_model(quantization=FP8), tensor_parallel_size=8),
        case(of=moe_model(quantization=FP8), tensor_parallel_size=4),
    ),
    "PAR-07": (
        case(of=model(quantization=FP8, intermediate_size=11008), tensor_parallel_size=4),
        case(of=model(quantization=FP8), tensor_parallel_size=4),
    ),
    "PAR-08": (
        case(of=model(quantization=AWQ, intermediate_size=18944), tensor_parallel_size=8),
        case(of=model(quantization=AWQ, intermediate_size=18944), tensor_parallel_size=4),
    ),
    "PAR-09": (
        case(of=moe_model(moe=ODD), tensor_parallel_size=8, enable_expert_parallel=True),
        case(of=moe_model(), tensor_parallel_size=8, enable_expert_parallel=True),
    ),
    "PAR-10": (
        case(of=moe_model(moe=ODD), tensor_parallel_size=8,
             enable_expert_parallel=True, enable_eplb=True),
        case(of=moe_model(), tensor_parallel_size=8, enable_expert_parallel=True, enable_eplb=True),
    ),
    "PAR-11": (case(enable_expert_parallel=True), case(of=moe_model(), enable_expert_parallel=True)),
    "PAR-12": (
        case(of=moe_model(), tensor_parallel_size=8, enable_eplb=True),
        case(of=moe_model(), tensor_parallel_size=8, enable_eplb=True, enable_expert_parallel=True),
    ),
    "PAR-13": (
        case(of=moe_model(), enable_eplb=True, enable_expert_parallel=True),
        case(of=moe_model(), data_parallel_size=2, enable_eplb=True, enable_expert_parallel=True),
    ),
    "PAR-14": (
        case(of=moe_model(), tensor_parallel_size=8, enable_expert_parallel=True),
        case(of=moe_model(), tensor_parallel_size=8),
    ),
    "PAR-15": (
        case(of=mla_model(), tensor_parallel_size=8, decode_context_parallel_size=3),
        case(of=mla_model(), tensor_parallel_size=8, decode_context_parallel_size=4),
    ),
    "PAR-16": (
        case(tensor_parallel_size=8, decode_context_parallel_size=2),
        case(on=node(n=16, island=16), tensor_parallel_size=16, decode_context_parallel_size=2),
    ),
    "PAR-17": (
        case(of=model(attention_heads=40, caches=(changed(FULL, q_heads=40, kv_heads=8),)),
             on=node(n=40, island=40), tensor_parallel_size=40, decode_context_parallel_size=4),
        case(on=node(n=16, island=16), tensor_parallel_size=16, decode_context_parallel_size=2),
    ),
    "PAR-18": (case(tensor_parallel_size=8, data_parallel_size=2), case(tensor_parallel_size=8)),
    "PAR-19": (case(on=node(island=2), tensor_parallel_size=4), case(on=node(island=4), tensor_parallel_size=4)),
    "PAR-20": (case(on=node(island=1), tensor_parallel_size=4), case(on=node(island=1), data_parallel_size=4)),
    "PAR-21": (case(on=node(count=2), tensor_parallel_size=16), case(on=node(count=2), tensor_parallel_size=8)),
    "PAR-22": (case(pipeline_parallel_size=2), case(on=node(island=1), pipeline_parallel_size=2)),
    "PAR-23": (case(pipeline_parallel_size=64), case(pipeline_parallel_size=8)),
    "PAR-24": (case(pipeline_parallel_size=3), case(pipeline_parallel_size=4)),
    "PAR-25": (case(data_parallel_size=2), case(tensor_parallel_size=2)),
    "PAR-26": (case(tensor_parallel_size=8), case(on=node(island=2), tensor_parallel_size=8)),
    "PAR-27": (
        case(on=node(n=2, partition="3g.40gb"), tensor_parallel_size=2),
        case(on=node("gfx942", n=2, partition="CPX"), tensor_parallel_size=2),
    ),
    "QNT-01": (case(on=node("sm70")), case(on=node("sm75"))),
    "QNT-02": (case(of=model(architecture="NoSuchForCausalLM")), case()),
    "QNT-03": (
        case(vllm="0.24.0", of=moe_model(model_type="minimax_m3")),  # made older below
        case(vllm="0.24.0", of=moe_model(model_type="minimax_m3")),
    ),
    "QNT-04": (
        case(of=model(quantization=Quantization("bitsandbytes", "int8"))),
        case(vllm="0.24.0", of=model(quantization=Quantization("bitsandbytes", "int8"))),
    ),
    "QNT-05": (case(of=model(quantization=Quantization("gguf", "other"))), case(of=model(quantization=AWQ))),
    "QNT-06": (
        case(on=node("gfx942"), of=moe_model(quantization=Quantization("experts_int8", "int8"))),
        case(of=moe_model(quantization=Quantization("experts_int8", "int8"))),
    ),
    "QNT-07": (
        case(on=node("sm75"), of=moe_model(quantization=MXFP4)),
        case(on=node("sm80"), of=moe_model(quantization=MXFP4)),
    ),
    "QNT-08": (
        case(of=model(quantization=AWQ), quantization="fp8_per_channel"),
        case(quantization="fp8_per_channel"),
    ),
    "QNT-09": (case(vllm="0.24.0", quantization="mxfp4"), case(quantization="mxfp4")),
    "QNT-10": (case(quantization="fp8"), case(vllm="0.24.0", quantization="fp8")),
    "QNT-11": (
        case(on=node("gfx90a"), of=model(quantization=Quantization("fp8", "fp8_tensor", 8, 8))),
        case(on=node("gfx942"), of=model(quantization=Quantization("fp8", "fp8_tensor", 8, 8))),
    ),
    "QNT-12": (
        case(on=node("gfx942"), quantization="mxfp4", of=moe_model()),
        case(on=node("gfx942"), quantization="mxfp4", of=moe_model(), env=AITER),
    ),
    "QNT-13": (case(of=model(quantization=Quantization("torchao", "other"))), case(of=model(quantization=AWQ))),
    "QNT-14": (
        case(on=node("gfx942"), of=moe_model(quantization=NVFP4)),
        case(on=node("sm100"), of=moe_model(quantization=NVFP4)),
    ),
    "QNT-15": (
        case(on=node("sm80"), of=model(quantization=AWQ), load={"concurrency": 128}),
        case(on=node("sm80"), of=model(quantization=AWQ), load={"concurrency": 8}),
    ),
    "QNT-16": (
        case(on=node("gfx942"), of=moe_model(moe=GPT_OSS, quantization=MXFP4)),
        case(on=node("gfx942"), of=moe_model(moe=GPT_OSS, quantization=MXFP4), env=AITER),
    ),
    "QNT-17": (
        case(on=node("sm89"), of=model(quantization=FP8)),
        case(vllm="0.24.0", on=node("sm89"), of=model(quantization=FP8)),
    ),
    "QNT-18": (case(on=node("sm75")), case(on=node("sm80"))),
    "QNT-19": (case(on=node("gfx942"), kv_cache_dtype="fp8"), case(on=node("gfx950"), kv_cache_dtype="fp8")),
    "QNT-20": (case(quantization="fp8_per_channel"), case()),
    "QNT-21": (case(of=model(quantization=FP8)), case(quantization="fp8_per_channel")),
    "QNT-22": (case(quantization="fp8_per_channel"), case(of=model(quantization=FP8))),
    "QNT-23": (case(on=node("sm80"), quantization="mxfp8"), case(quantization="fp8_per_channel")),
    "QNT-24": (
        case(of=model(tower_widths=(1152, 4304)), quantization="mxfp8"),
        case(of=model(tower_widths=(1152, 4304)), quantization="fp8_per_channel"),
    ),
    "QNT-28": (
        case(on=node("gfx942"), of=model(quantization=W4A16)),
        case(on=node("gfx942"), of=model(quantization=NVFP4)),
    ),
    "QNT-29": (case(on=node("gfx90a"), quantization="advisor_mxfp4"), case(quantization="advisor_mxfp4")),
    "QNT-30": (case(quantization="advisor_mxfp4"), case(quantization="mxfp4")),
    "QNT-31": (case(on=node("sm80"), quantization="advisor_mxfp4"), case(quantization="advisor_mxfp4")),
    "QNT-33": (
        case(vllm="0.32.0", on=node("cpu-amx"), quantization="fp8_per_channel"),
        case(on=node("cpu-amx"), quantization="fp8_per_channel"),  # 0.33 has a kernel for it
    ),
    "KV-01": (case(on=node("sm80"), of=mla_model(), kv_cache_dtype="fp8"), case(of=mla_model(), kv_cache_dtype="fp8")),
    "KV-02": (case(vllm="0.24.0", kv_cache_dtype="int4_per_token_head"), case(kv_cache_dtype="int4_per_token_head")),
    "KV-03": (case(kv_cache_dtype="fp8_e5m2"), case(kv_cache_dtype="fp8")),
    "KV-04": (
        case(of=model(quantization=FP8), kv_cache_dtype="fp8_e5m2"),
        case(of=model(quantization=AWQ), kv_cache_dtype="fp8_e5m2"),
    ),
    "KV-05": (
        case(kv_cache_dtype="fp8"),
        case(of=model(quantization=changed(FP8, kv_cache_dtype="fp8"))),
    ),
    "KV-06": (case(on=node("sm86"), kv_cache_dtype="fp8"), case(on=node("sm89"), kv_cache_dtype="fp8")),
    "KV-07": (case(on=node("sm89"), kv_cache_dtype="fp8"), case(on=node("sm90"), kv_cache_dtype="fp8")),
    "KV-08": (
        case(on=node("sm80"), of=model(caches=(SINKS,)), kv_cache_dtype="fp8"),
        case(on=node("sm90"), of=model(caches=(SINKS,)), kv_cache_dtype="fp8"),
    ),
    "KV-09": (case(of=mla_model(), kv_cache_dtype="nvfp4"), case(of=mla_model(), kv_cache_dtype="fp8")),
    "KV-10": (
        case(kv_cache_dtype="fp8", load=LONG | {"sensitivity": Sensitivity.RETRIEVAL}),
        case(kv_cache_dtype="fp8", load=LONG),
    ),
    "KV-11": (
        case(kv_cache_dtype="fp8", load={"sensitivity": Sensitivity.SENSITIVE}),
        case(load={"sensitivity": Sensitivity.SENSITIVE}),
    ),
    "KV-12": (case(kv_cache_dtype="float16"), case(vllm="0.24.0", kv_cache_dtype="float16")),
    "KV-13": (case(of=model(caches=(FULL, STATE)), kv_cache_dtype="fp8"), case(of=model(caches=(FULL, STATE)))),
    "KV-14": (case(kv_cache_dtype="fp8", load=LONG), case(kv_cache_dtype="fp8")),
    "KV-15": (case(kv_cache_dtype="fp8"), case(kv_cache_dtype="fp8", load=LONG)),
    "KV-16": (case(kv_cache_dtype="nvfp4"), case(kv_cache_dtype="fp8")),
    "KV-17": (
        case(of=moe_model(model_type="minimax_m3"), block_size=64),
        case(of=moe_model(model_type="minimax_m3"), block_size=128),
    ),
    "KV-18": (
        case(attention_backend="FLASH_ATTN", kv_cache_dtype="fp8_e5m2"),
        case(attention_backend="FLASHINFER", kv_cache_dtype="fp8_e5m2"),
    ),
    "KV-19": (case(of=model(caches=(COMPRESSED,))), case()),
    "KV-20": (case(), case(kv_cache_dtype="fp8")),
    "KV-21": (
        case(on=node("sm100"), of=model(caches=(WIDE_KEYS,)), kv_cache_dtype="fp8"),
        case(on=node("sm120"), of=model(caches=(WIDE_KEYS,)), kv_cache_dtype="fp8"),
    ),
    "KV-22": (
        case(on=node("sm80"), of=model(bidirectional_images=True), kv_cache_dtype="fp8"),
        case(on=node("sm90"), of=model(bidirectional_images=True), kv_cache_dtype="fp8"),
    ),
    "ACC-01": (
        case(quantization="mxfp4", load={"sensitivity": Sensitivity.SENSITIVE}),
        case(quantization="fp8_per_channel", load={"sensitivity": Sensitivity.SENSITIVE}),
    ),
    "ACC-02": (case(quantization="mxfp4"), case(of=model(quantization=AWQ))),
    "ACC-03": (
        case(of=model(quantization=AWQ, **COPY), load={"sensitivity": Sensitivity.SENSITIVE}),
        case(of=model(quantization=AWQ), load={"sensitivity": Sensitivity.SENSITIVE}),
    ),
    "ACC-04": (case(load={"sensitivity": Sensitivity.SENSITIVE}), case()),
    "ACC-05": (
        case(quantization="fp8_per_tensor", load={"sensitivity": Sensitivity.SENSITIVE}),
        case(quantization="fp8_per_channel", load={"sensitivity": Sensitivity.SENSITIVE}),
    ),
    "ACC-06": (case(of=model(siblings=SIBLINGS), quantization="fp8_per_channel"), case(quantization="fp8_per_channel")),
    "ACC-07": (case(quantization="fp8_per_tensor"), case(quantization="fp8_per_block")),
    "ACC-08": (
        case(of=model(quantization=AWQ, **(COPY | {"name": "someone/model-AWQ"}))),
        case(of=model(quantization=AWQ, **COPY)),
    ),
    "ACC-09": (case(of=moe_model(quantization=AWQ, **COPY)), case(of=model(quantization=AWQ, **COPY))),
    "ACC-10": (
        case(quantization="fp8_per_channel", load={"sensitivity": Sensitivity.SENSITIVE}),
        case(quantization="fp8_per_channel", load={"sensitivity": Sensitivity.RETRIEVAL}),
    ),
    "ACC-11": (case(of=model(quantization=AWQ, **COPY)), case(of=model(quantization=AWQ))),
    "ACC-12": (
        case(of=model(weights=SMALL), quantization="fp8_per_channel"),
        case(of=model(weights=LARGE), quantization="fp8_per_channel"),
    ),
    "BAT-01": (
        case(of=model(caches=(FULL, STATE)), fits=budget(num_blocks=200)),
        case(of=model(caches=(FULL, STATE)), fits=budget(num_blocks=200), max_num_seqs=128),
    ),
    "BAT-02": (case(max_num_batched_tokens=128), case(max_num_batched_tokens=256)),
    "BAT-03": (case(max_num_seqs=16), case(max_num_seqs=32)),
    "BAT-04": (
        case(max_num_batched_tokens=16384, load={"objective": Objective.LATENCY}),
        case(max_num_batched_tokens=16384),
    ),
    "BAT-05": (case(load=LONG), case()),
    "ENV-01": (case(on=node("gfx942")), case(on=node("gfx942"), env=AITER)),
    "ENV-02": (case(on=node("gfx90a"), env=AITER), case(on=node("gfx950"), env=AITER)),
    "ENV-03": (case(env=(("VLLM_USE_TRITON_FLASH_ATTN", "0"),)), case(env=(("NCCL_DEBUG", "WARN"),))),
    "LNG-01": (case(max_model_len=200_000), case(max_model_len=131_072)),
    "LNG-02": (case(max_model_len=1024), case(max_model_len=1536)),
    "LNG-03": (
        case(of=mla_model(), tensor_parallel_size=8, load=LONG),
        case(of=mla_model(), tensor_parallel_size=8, load=LONG, decode_context_parallel_size=8),
    ),
    "HW-01": (case(on=node(unverified=("bandwidth",))), case()),
    "HW-02": (case(on=node(unified_memory=True)), case()),
    "HW-03": (case(on=Node((gpu("sm90"), gpu("sm90", gib=40)))), case()),
    "HW-04": (case(on=node("cpu-avx512", n=1)), case()),
    "HW-05": (case(on=node("cpu-avx512", n=1)), case(on=node("cpu-avx512", n=1), enforce_eager=True)),
    "PRV-01": (case(of=model(provenance="assembled")), case()),
    "PRV-02": (case(of=model(exact_weight_bytes=None)), case()),
    "VER-01": (case(performance_mode="throughput"), case(performance_mode="throughput")),  # flag taken away below
    "VER-02": (case(moe_backend="rdna3", vllm="0.24.0"), case(moe_backend="rdna3")),
    "VER-03": (case(attention_backend="ROCM_OCTAVE", vllm="0.24.0"), case(attention_backend="ROCM_OCTAVE")),
    "VER-04": (untabled(case()), case()),
    "VER-05": (case(), case()),  # a gate that was not read is put in below
}  # fmt: skip


def _with_surface(asked, **change):
    vllm = asked.facts.vllm._replace(**change)
    return changed(asked, facts=changed(asked.facts, vllm=vllm))


CASES["QNT-03"] = (_with_surface(CASES["QNT-03"][0], release=(0, 23, 0), version="0.23.0"), CASES["QNT-03"][1])
UNREAD = surface.load("0.33.0").kernels | {"unread": [["linear/bf16", "sm90", "is_tuned(M, N, K)"]]}
CASES["VER-05"] = (_with_surface(CASES["VER-05"][0], more={"kernels": UNREAD}), CASES["VER-05"][1])
CASES["VER-01"] = (_with_surface(CASES["VER-01"][0], flags={}), CASES["VER-01"][1])


def found(asked):
    """Ids of what is said of a case."""
    return {finding.rule for finding in judge(asked)}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_every_rule_has_a_case_where_it_fires(rule):
    """A rule that nothing can trigger would be decoration."""
    firing, _ = CASES[rule.id]
    assert rule.id in found(firing)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_every_rule_has_a_case_where_it_is_silent(rule):
    """A rule that always speaks says nothing."""
    _, silent = CASES[rule.id]
    assert rule.id not in found(silent)


def test_cases_and_rules_name_the_same_ids():
    """No case is left behind when a rule goes, and no rule comes without its cases."""
    assert [r.id for r in RULES] == list(CASES)


def test_ids_are_unique_and_of_one_form():
    """An id is a family and a number, used once."""
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert all(
        family.isalpha() and number.isdigit() and len(number) == 2 for family, number in (i.split("-") for i in ids)
    )


def test_every_rule_names_a_source():
    """A rule without a source is an opinion, and an opinion says `advice`."""
    assert all(rule.source for rule in RULES)


def test_factors_are_preferences_not_verdicts():
    """Discouraging lowers a score, preferring raises it, neither decides alone."""
    assert all(0.2 < r.verdict.weight < 1 for r in RULES if r.verdict.level == "discourage")
    assert all(1 < r.verdict.weight <= 1.1 for r in RULES if r.verdict.level == "prefer")


def test_the_engine_never_stops_at_the_first_veto():
    """A plan that is wrong in three ways hears all three, in table order."""
    wrong = case(tensor_parallel_size=3, data_parallel_size=4, enable_expert_parallel=True, max_num_batched_tokens=8)
    vetoes = [f.rule for f in judge(wrong) if f.level == "veto"]
    assert vetoes == ["PAR-01", "PAR-02", "PAR-11", "PAR-18", "BAT-02"]


def test_judging_twice_says_the_same():
    """The engine is pure: equal cases give equal findings, whatever was judged between."""
    asked = case(on=node(island=2), tensor_parallel_size=4, kv_cache_dtype="fp8")
    first = judge(asked)
    judge(case(on=node(island=1), tensor_parallel_size=8))
    assert first == judge(asked)


def test_messages_carry_numbers_and_no_open_braces():
    """Every sentence and hint is formatted with what its predicate found."""
    for firing, _ in CASES.values():
        for finding in judge(firing):
            assert "{" not in finding.message + finding.hint


def test_a_plain_good_plan_hears_nothing_bad():
    """BF16 Llama on one H100 is neither vetoed nor discouraged."""
    assert [] == [f for f in judge(case()) if f.level in ("veto", "discourage")]


def test_weights_that_do_not_fit_name_both_numbers():
    """The seed's own example: MiniMax-M3 in FP8 needs more than four 80 GB devices have."""
    asked = case(fits=budget(weights=101 * GIB, requested=73 * GIB, verdict="does not fit"), tensor_parallel_size=4)
    message = next(f.message for f in judge(asked) if f.rule == "MEM-01")
    assert message == "weights need 101.0 GiB on each rank with TP4, 73.0 GiB are usable"


def test_dead_variables_of_the_seed_are_named():
    """The seed exports a variable that neither version knows."""
    for version in ("0.24.0", "0.33.0"):
        asked = case(vllm=version, on=node("gfx942"), env=(*AITER, ("VLLM_USE_TRITON_FLASH_ATTN", "0")))
        message = next(f.message for f in judge(asked) if f.rule == "ENV-03")
        assert message == f"VLLM_USE_TRITON_FLASH_ATTN: unknown to vLLM {version}, which warns and ignores them"


def test_e5m2_with_online_fp8_is_refused_in_0_24_only():
    """0.24 attaches KV scales to online FP8, 0.33 does not."""
    asked = {"quantization": "fp8", "kv_cache_dtype": "fp8_e5m2"}
    assert "KV-04" in found(case(vllm="0.24.0", **asked))
    assert "KV-04" not in found(case(**asked))


def test_rare_shapes_do_not_break_a_predicate():
    """A model without attention, without experts, without layers is judged, not crashed on."""
    empty = model(attention_heads=0, kv_heads=0, caches=(), num_layers=0, intermediate_size=0, max_position=0)
    assert isinstance(judge(case(of=empty, tensor_parallel_size=8, pipeline_parallel_size=2)), tuple)


def test_aiter_in_the_way_of_experts_is_named_with_its_switch():
    """0.24 on MI300X with AITER on cannot run MiniMax-M3's experts; its own MoE switch can be turned off alone."""
    m3 = moe_model(model_type="minimax_m3", moe=GPT_OSS)
    on = node("gfx942")
    hint = next(f.hint for f in judge(case(vllm="0.24.0", on=on, of=m3, env=AITER)) if f.rule == "QNT-12")
    assert hint == "VLLM_ROCM_USE_AITER_MOE=0"
    assert "QNT-12" not in found(case(vllm="0.24.0", on=on, of=m3, env=(*AITER, ("VLLM_ROCM_USE_AITER_MOE", "0"))))


@pytest.mark.parametrize("version", ["0.24.0", "0.33.0"])
@pytest.mark.parametrize(
    ("other", "plan", "layer"),
    [
        ({"tower_widths": (1152, 4304)}, {}, "the vision tower is 4304"),
        ({"tower_widths": (1152,)}, {"tensor_parallel_size": 8}, "the vision tower is 144"),
        ({"tower_widths": (1152,)}, {"tensor_parallel_size": 4}, ""),
        ({"intermediate_size": 13_824}, {"tensor_parallel_size": 8}, ""),
        ({"intermediate_size": 8976}, {}, "the feed-forward is 8976"),
        ({"caches": (changed(FULL, v_dim=72),)}, {"tensor_parallel_size": 8}, ""),
        ({"caches": (changed(FULL, q_heads=36, v_dim=72),)}, {"tensor_parallel_size": 8}, "attention's output is 324"),
    ],
)
def test_microscaled_inputs_come_in_groups_of_32(version, other, plan, layer):
    """Every linear layer that the flag converts counts, the vision tower's too, as wide as it is on one rank."""
    asked = case(vllm=version, on=node("sm100"), of=model(**other), quantization="mxfp8", **plan)
    said = [f.message for f in judge(asked) if f.rule == "QNT-24"]
    assert bool(layer) == bool(said)
    assert all(layer in text for text in said)


def test_whole_experts_are_wide_enough_for_groups_of_32():
    """768 columns cut 16 ways are 48; with expert parallelism they stay 768."""
    narrow = moe_model(moe=changed(MOE, intermediate_size=768), intermediate_size=6144)
    asked = {"on": node("sm100", n=16), "of": narrow, "quantization": "mxfp8", "tensor_parallel_size": 16}
    assert "QNT-24" in found(case(**asked))
    assert "QNT-24" not in found(case(**asked, enable_expert_parallel=True))


@pytest.mark.parametrize(
    ("version", "arch", "sinks", "refused"),
    [
        ("0.33.0", "sm90", False, False),
        ("0.33.0", "sm90", True, True),
        ("0.33.0", "sm100", False, True),
        ("0.33.0", "sm89", True, False),
        ("0.33.0", "sm80", False, True),
        ("0.33.0", "gfx942", True, False),
        ("0.31.0", "gfx942", True, True),
        ("0.24.0", "sm120", False, True),
        ("0.32.0", "sm120", False, False),
    ],
)
def test_keys_wider_than_values_rarely_take_an_fp8_cache(version, arch, sinks, refused):
    """FlashAttention 3 without sinks does; Triton's kernel does since 0.32; FlashAttention 4 does not."""
    wide = model(caches=(changed(WIDE_KEYS, sinks=sinks),))
    assert refused == ("KV-21" in found(case(vllm=version, on=node(arch), of=wide, kv_cache_dtype="fp8")))


def test_a_checkpoint_that_wants_fp8_for_image_attention_is_refused_on_ampere():
    """What the checkpoint asks for counts like the flag; the model's own dtype is the way out."""
    wants = model(bidirectional_images=True, quantization=changed(NVFP4, kv_cache_dtype="fp8"))
    hint = next(f.hint for f in judge(case(on=node("sm80"), of=wants)) if f.rule == "KV-22")
    assert "--kv-cache-dtype bfloat16" == hint
    assert "KV-22" not in found(case(on=node("sm80"), of=wants, kv_cache_dtype="bfloat16"))


@pytest.mark.parametrize(("base", "said"), [("int4", False), ("bf16", True), ("fp8_block", True)])
def test_a_four_bit_copy_of_a_four_bit_model_is_no_step_down(base, said):
    """Kimi-K2.5 was published in INT4: NVFP4 of it is a change of format."""
    copy = model(**COPY, quantization=NVFP4, siblings=(("acme/model", base),))
    assert said == ("ACC-11" in found(case(on=node("sm100"), of=copy)))
    sensitive = case(on=node("sm100"), of=copy, load={"sensitivity": Sensitivity.SENSITIVE})
    assert said == ("ACC-03" in found(sensitive))


@pytest.mark.parametrize("arch", ["sm80", "sm90"])
def test_int8_experts_made_while_loading_compute_in_16_bits(arch):
    """The flag says weight-only: inputs have no scale, so the kernel unpacks the weights."""
    asked = case(on=node(arch), of=moe_model(), quantization="int8_per_channel_weight_only")
    assert "QNT-23" in found(asked)
    assert "QNT-22" not in found(asked)


def test_aiter_is_missed_only_where_it_has_a_kernel_for_mxfp4_experts():
    """On MI300X it has one since 0.31; before, the switch changes nothing for them."""
    experts = {"on": node("gfx942"), "of": moe_model(quantization=MXFP4)}
    message = next(f.message for f in judge(case(**experts)) if f.rule == "QNT-16")
    assert (
        "MXFP4 experts on gfx942 without AITER: no kernel at all; with it vLLM takes AITER_TRITON_MXFP4_BF16" == message
    )
    assert "QNT-16" not in found(case(**experts, vllm="0.24.0"))

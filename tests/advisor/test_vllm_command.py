"""A plan becomes a command of one version: every flag exists there, and what was predicted is what runs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import replace

import pytest

from vllm_advisor.catalog import models
from vllm_advisor.errors import BadInput, UsageError
from vllm_advisor.hardware import Gpu, Node, Vendor
from vllm_advisor.model import ModelSpec
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.command import HEAD_ADDRESS, build, llm_kwargs, quantization_name
from vllm_advisor.vllm.environment import environment
from vllm_advisor.vllm.surface import load, versions
from vllm_advisor.workload import Workload


VERSIONS = versions()


def node(name, vendor, arch, gib, count=8):
    return Node((Gpu(name, vendor, arch, int(gib * GIB), 1e12, 100.0),) * count)


L4 = node("NVIDIA L4", Vendor.NVIDIA, "sm89", 22.0, 1)
H100 = node("NVIDIA H100 80GB HBM3", Vendor.NVIDIA, "sm90", 79.6)
B200 = node("NVIDIA B200", Vendor.NVIDIA, "sm100", 178.4)
MI300X = node("AMD Instinct MI300X", Vendor.AMD, "gfx942", 191.7)
CPU = node("EPYC", Vendor.CPU, "cpu-x86_64", 64.0, 1)
NODES = (L4, H100, B200, MI300X, CPU)
MODEL = ModelSpec(
    "meta/base",
    "LlamaForCausalLM",
    "llama",
    "bfloat16",
    4096,
    32,
    128256,
    131072,
    32,
    8,
    (),
    (),
    intermediate_size=14336,
)
# What 0.33.0 takes on an H100 with no flag, so that a plan of these values is an empty command.
DEFAULT = Plan("meta/base", max_model_len=131072, max_num_seqs=1024, max_num_batched_tokens=8192)


def argv(plan, version="0.33.0", model=MODEL, on=H100):
    return build(plan, model, on, load(version), Workload()).argv


def flags(*args, **kwargs):
    """The flags of a command as a mapping; a switch is True."""
    words = argv(*args, **kwargs)[3:]
    following = (*words[1:], "--")
    return {w: True if f.startswith("--") else f for w, f in zip(words, following, strict=False) if w.startswith("--")}


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_that_restates_a_default_is_written(version):
    """A plan of the version's own values is `vllm serve CHECKPOINT` and nothing else."""
    assert ("vllm", "serve", "meta/base") == argv(DEFAULT, version)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"max_model_len": 8192}, {"--max-model-len": "8192"}),
        ({"max_num_seqs": 64}, {"--max-num-seqs": "64"}),
        ({"max_num_batched_tokens": 16384}, {"--max-num-batched-tokens": "16384"}),
        ({"gpu_memory_utilization": 0.9}, {"--gpu-memory-utilization": "0.9"}),
        ({"kv_cache_dtype": "fp8"}, {"--kv-cache-dtype": "fp8"}),
        ({"quantization": "fp8_per_channel"}, {"--quantization": "fp8_per_channel"}),
        ({"tensor_parallel_size": 8}, {"--tensor-parallel-size": "8"}),
        ({"pipeline_parallel_size": 2}, {"--pipeline-parallel-size": "2"}),
        ({"data_parallel_size": 4}, {"--data-parallel-size": "4"}),
        ({"decode_context_parallel_size": 2}, {"--decode-context-parallel-size": "2"}),
        ({"enable_expert_parallel": True}, {"--enable-expert-parallel": True}),
        ({"enable_eplb": True}, {"--enable-eplb": True}),
        ({"block_size": 64}, {"--block-size": "64"}),
        ({"attention_backend": "FLASHINFER"}, {"--attention-backend": "FLASHINFER"}),
        ({"moe_backend": "triton"}, {"--moe-backend": "triton"}),
        ({"performance_mode": "interactivity"}, {"--performance-mode": "interactivity"}),
        ({"performance_mode": "balanced"}, {}),
        ({"enforce_eager": True}, {"--enforce-eager": True}),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_knob_is_written_where_it_differs(version, change, expected):
    """A knob that differs from the default is one flag; one that does not is none."""
    assert expected == flags(replace(DEFAULT, **change), version)


def test_the_order_is_for_reading():
    """Layout first, then formats, limits and the engine's knobs."""
    plan = replace(
        DEFAULT, enforce_eager=True, max_num_seqs=64, kv_cache_dtype="fp8", tensor_parallel_size=2, max_model_len=8192
    )
    expected = (
        "vllm", "serve", "meta/base", "--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8",
        "--max-model-len", "8192", "--max-num-seqs", "64", "--enforce-eager",
    )  # fmt: skip
    assert expected == argv(plan)


@pytest.mark.parametrize(
    ("on", "version", "tokens"),
    [
        (H100, "0.24.0", 8192),
        (H100, "0.33.0", 8192),
        (B200, "0.24.0", 8192),
        (B200, "0.33.0", 16384),
        (L4, "0.33.0", 2048),
    ],
)
def test_the_default_is_that_of_version_and_card(on, version, tokens):
    """The same number of tokens is a default on one card and a flag on another."""
    plan = replace(DEFAULT, max_num_seqs=64)
    assert "--max-num-batched-tokens" not in flags(replace(plan, max_num_batched_tokens=tokens), version, on=on)
    other = flags(replace(plan, max_num_batched_tokens=tokens + 8), version, on=on)
    assert str(tokens + 8) == other["--max-num-batched-tokens"]


def test_vllm_caps_its_default_tokens_by_the_other_limits():
    """With 4 requests of 1024 tokens the default is 4096: 8192 has to be written, 4096 not."""
    plan = replace(DEFAULT, max_model_len=1024, max_num_seqs=4)
    assert "8192" == flags(replace(plan, max_num_batched_tokens=8192))["--max-num-batched-tokens"]
    assert "--max-num-batched-tokens" not in flags(replace(plan, max_num_batched_tokens=4096))


def test_vllm_caps_its_default_requests_by_the_tokens():
    """With 512 tokens a step the default is 512 requests."""
    plan = replace(DEFAULT, max_num_batched_tokens=512)
    assert "--max-num-seqs" not in flags(replace(plan, max_num_seqs=512))
    assert "1024" == flags(replace(plan, max_num_seqs=1024))["--max-num-seqs"]


def test_throughput_mode_brings_its_own_defaults():
    """In throughput mode the doubled values need no flag."""
    plan = replace(DEFAULT, performance_mode="throughput", max_num_seqs=2048, max_num_batched_tokens=16384)
    assert {"--performance-mode": "throughput"} == flags(plan)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_old_name_of_online_fp8_is_translated(version):
    """`fp8` means fp8_per_tensor, a name that all shipped versions have."""
    assert "fp8_per_tensor" == quantization_name("fp8", load(version))


def test_a_method_that_the_version_lacks_is_refused():
    """nvfp4_per_token came after 0.24.0; the hint names what is online there."""
    with pytest.raises(BadInput) as caught:
        argv(replace(DEFAULT, quantization="nvfp4_per_token"), "0.24.0")
    assert "fp8_per_channel" in caught.value.hint


@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("0.33.0", {"kv_cache_dtype": "fp8_e4m3fn"}),
        ("0.24.0", {"kv_cache_dtype": "nvfp4_ds_mla"}),
        ("0.24.0", {"moe_backend": "b12x"}),
        ("0.24.0", {"attention_backend": "B12X"}),
        ("0.33.0", {"performance_mode": "turbo"}),
        ("0.33.0", {"env": (("VLLM_ATTENTION_BACKEND", "FLASH_ATTN"),)}),
    ],
)
def test_a_value_that_the_version_lacks_is_refused(version, change):
    """A dtype, a backend or a variable that the version does not have never gets into a command."""
    with pytest.raises(BadInput):
        argv(replace(DEFAULT, **change), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_several_nodes_run_one_command_each(version):
    """The first node's command has its rank and a place for its address; a note says what the others write."""
    plan = replace(DEFAULT, tensor_parallel_size=8, pipeline_parallel_size=2, num_nodes=2)
    command = build(plan, MODEL, replace(H100, count=2), load(version), Workload())
    text = " ".join(command.argv)
    assert f"--nnodes 2 --node-rank 0 --master-addr {HEAD_ADDRESS}" in text
    assert "--headless" in dict(command.notes)["--node-rank"]


def test_what_the_model_needs_comes_along():
    """MiniMax-M3 gets its block size, parsers and tool choice; a block size of the plan wins."""
    model = replace(MODEL, name="MiniMaxAI/MiniMax-M3", architecture="MiniMaxM3SparseForConditionalGeneration")
    expected = {
        "--block-size": "128", "--reasoning-parser": "minimax_m3", "--enable-auto-tool-choice": True,
        "--tool-call-parser": "minimax_m3",
    }  # fmt: skip
    assert expected == flags(DEFAULT, model=model)
    assert "256" == flags(replace(DEFAULT, block_size=256), model=model)["--block-size"]
    assert 1 == argv(replace(DEFAULT, block_size=256), model=model).count("--block-size")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_and_variable_has_a_note(version):
    """Each flag and each variable says why it is there; remarks stand under no name."""
    plan = replace(DEFAULT, tensor_parallel_size=8, enable_expert_parallel=True, env=(("VLLM_ROCM_USE_AITER", "1"),))
    model = replace(MODEL, name="moonshotai/Kimi-K2-Instruct", architecture="DeepseekV3ForCausalLM")
    command = build(plan, model, MI300X, load(version), Workload())
    named = {name for name, _ in command.notes}
    assert {w for w in command.argv if w.startswith("--")} | {"VLLM_ROCM_USE_AITER"} <= named
    assert any("repository" in why for name, why in command.notes if name == "")
    assert all(why for _, why in command.notes)


def test_a_requirement_comes_with_its_source():
    """The note of a flag that the model needs names where that stands."""
    model = replace(MODEL, name="Qwen/Qwen3-30B-A3B", architecture="Qwen3MoeForCausalLM")
    notes = dict(build(DEFAULT, model, H100, load("0.33.0"), Workload()).notes)
    assert "vllm-project/recipes models/Qwen/Qwen3-30B-A3B.yaml" in notes["--reasoning-parser"]


def test_the_environment_is_the_plans():
    """What was predicted with a variable runs with it."""
    plan = replace(DEFAULT, env=(("VLLM_ROCM_USE_AITER", "1"),))
    assert plan.env == build(plan, MODEL, MI300X, load("0.33.0"), Workload()).env


def test_python_writes_what_llm_would_take_otherwise():
    """`LLM()` batches 16384 tokens on an H100: the server's 8192 has to be said, and 16384 not."""
    surface = load("0.33.0")
    kwargs = dict(llm_kwargs(DEFAULT, MODEL, H100, surface, Workload()))
    assert {"model": "meta/base", "max_num_batched_tokens": 8192} == kwargs
    larger = replace(DEFAULT, max_num_batched_tokens=16384)
    assert {"model": "meta/base"} == dict(llm_kwargs(larger, MODEL, H100, surface, Workload()))


def test_python_has_values_of_python():
    """Numbers are numbers, switches are True, names are vLLM's arguments; the server's own flags are left out."""
    plan = replace(DEFAULT, tensor_parallel_size=2, enforce_eager=True, gpu_memory_utilization=0.85, max_num_seqs=64)
    model = replace(MODEL, name="Qwen/Qwen3-8B", architecture="Qwen3ForCausalLM")
    kwargs = dict(llm_kwargs(plan, model, H100, load("0.33.0"), Workload()))
    expected = {
        "model": "meta/base", "tensor_parallel_size": 2, "max_num_seqs": 64, "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.85, "enforce_eager": True, "reasoning_parser": "qwen3",
    }  # fmt: skip
    assert expected == kwargs


@pytest.mark.parametrize("change", [{"data_parallel_size": 2}, {"num_nodes": 2}])
def test_python_cannot_hold_several_engines(change):
    """Data parallelism and several nodes need a server."""
    with pytest.raises(UsageError):
        llm_kwargs(replace(DEFAULT, **change), MODEL, H100, load("0.33.0"), Workload())


LAYOUTS = ({}, {"tensor_parallel_size": 8}, {"tensor_parallel_size": 2, "data_parallel_size": 4},
           {"tensor_parallel_size": 8, "enable_expert_parallel": True, "enable_eplb": True},
           {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "num_nodes": 2},
           {"tensor_parallel_size": 8, "decode_context_parallel_size": 4})  # fmt: skip
LIMITS = ({}, {"max_model_len": 4096, "max_num_seqs": 8}, {"max_num_seqs": 2048, "max_num_batched_tokens": 32768},
          {"performance_mode": "throughput", "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.5})  # fmt: skip
FORMATS = ({}, {"quantization": "fp8", "enforce_eager": True}, {"quantization": "mxfp8", "block_size": 32},
           {"moe_backend": "triton", "attention_backend": "TRITON_ATTN"})  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("on", NODES, ids=lambda n: n.gpu.name)
def test_every_flag_exists_and_every_value_is_allowed(version, on):
    """Over a grid of plans each flag is in the version's surface under its full name, its value among the choices."""
    surface = load(version)
    for layout, limits, formats in itertools.product(LAYOUTS, LIMITS, FORMATS):
        for flag, value in flags(replace(DEFAULT, **layout, **limits, **formats), version, on=on).items():
            known = surface.flags[flag]
            assert known.kind in ("bool", "switch") if value is True else known.kind not in ("bool", "switch")
            assert not known.choices or value in known.choices


# Independent of defaults.py: what 0.33.0 takes on these cards, in tokens and requests.
SERVED = {"NVIDIA L4": (2048, 256), "NVIDIA H100 80GB HBM3": (8192, 1024), "NVIDIA B200": (16384, 1024)}


@pytest.mark.parametrize("on", [L4, H100, B200], ids=lambda n: n.gpu.name)
def test_what_is_emitted_is_what_was_predicted(on):
    """Reading a command as vLLM does, defaults and caps included, gives the plan's values back."""
    tokens, seqs = SERVED[on.gpu.name]
    for length, requests, batch in itertools.product(
        (256, 4096, 131072), (1, 8, 256, 1024, 2048), (64, 2048, 8192, 65536)
    ):
        plan = replace(DEFAULT, max_model_len=length, max_num_seqs=requests, max_num_batched_tokens=batch)
        read = flags(plan, on=on)
        got_length = int(read.get("--max-model-len", MODEL.max_position))
        asked_seqs = int(read.get("--max-num-seqs", seqs))
        got_batch = int(read.get("--max-num-batched-tokens", min(tokens, asked_seqs * got_length)))
        got_seqs = asked_seqs if "--max-num-seqs" in read else min(seqs, got_batch)
        assert (length, requests, batch) == (got_length, got_seqs, got_batch)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("on", [H100, MI300X], ids=lambda n: n.gpu.name)
def test_every_catalog_model_gives_a_command_of_the_version(version, on):
    """For each model of the catalog every flag and every parser's name is one of that version, twice the same."""
    surface = load(version)
    for model in filter(None, map(models.find, models.names())):
        plan = replace(DEFAULT, checkpoint=model.name, max_model_len=4096, tensor_parallel_size=8)
        plan = replace(plan, env=tuple((s.name, s.value) for s in environment(plan, model, on, surface)))
        read = flags(plan, version, model=model, on=on)
        assert set(read) <= set(surface.flags)
        assert read.get("--reasoning-parser") in (None, *surface.reasoning_parsers)
        assert read.get("--tool-call-parser") in (None, *surface.tool_parsers)
        assert {name for name, _ in plan.env} <= set(surface.env)
        assert build(plan, model, on, surface, Workload()) == build(plan, model, on, surface, Workload())


PARSE = """
import json, sys
commands = json.load(open(sys.argv[1]))
sys.argv = ["vllm"]
import vllm
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
parser, refused = make_arg_parser(FlexibleArgumentParser()), []
for command in commands.get(vllm.__version__, []):
    try:
        parser.parse_args(command[2:])
    except SystemExit:
        refused.append(command)
print(json.dumps({"version": vllm.__version__, "refused": refused}))
"""


@pytest.mark.vllm
@pytest.mark.skipif("ADVISOR_VLLM_PYTHON" not in os.environ, reason="no vLLM in another environment")
def test_the_real_parser_takes_every_command(tmp_path):
    """An installed vLLM's own parser accepts the command of each catalog model and of each plan of the grid."""
    grid = [replace(DEFAULT, **a, **b, **c) for a, b, c in itertools.product(LAYOUTS, LIMITS, FORMATS)]
    found = filter(None, map(models.find, models.names()))
    jobs = [(plan, MODEL) for plan in grid] + [(replace(DEFAULT, checkpoint=m.name), m) for m in found]
    commands = {v: [argv(plan, v, model) for plan, model in jobs] for v in VERSIONS}
    (tmp_path / "commands.json").write_text(json.dumps(commands))
    child = [os.environ["ADVISOR_VLLM_PYTHON"], "-c", PARSE, "commands.json"]
    done = subprocess.run(child, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300)
    said = json.loads(done.stdout.splitlines()[-1])
    assert [] == said["refused"]
    assert said["version"] in VERSIONS

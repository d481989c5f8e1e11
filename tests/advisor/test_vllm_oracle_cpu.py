"""The real vLLM for the CPU, 0.32.0, asked about commands: its verdict and that of our surface are the same.

ADVISOR_VLLM_PYTHON names the Python of an environment with it; no stand-in is needed, the platform is the machine's.
"""

import json

import pytest

from vllm_advisor.check import read, report
from vllm_advisor.cli import inputs
from vllm_advisor.facts import Facts
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm.oracle import Oracle
from vllm_advisor.vllm.oracle_compare import cells
from vllm_advisor.vllm.oracle_device import stand_in
from vllm_advisor.vllm.oracle_model import renamed, write
from vllm_advisor.workload import PRESETS


pytestmark = pytest.mark.vllm
VERSION = "0.32.0"
DENSE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 4, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 512, "num_attention_heads": 8,
    "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
GOOD = (
    [],
    ["--max-model-len", "4096", "--max-num-seqs", "8"],
    ["--max-model-len", "4K", "--dtype", "bfloat16"],
    ["--enforce-eager", "--no-enable-prefix-caching"],
    ["--gpu-memory-utilization", "0.5", "--block-size", "128"],
    ["--served-model-name", "a", "b", "--port", "8123"],
    ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"],
)
BAD = (
    ["--swap-space", "4"],
    ["--no-such-flag"],
    ["--kv-cache-dtype", "fp8_e4m3fn"],
    ["--max-num-seqs", "many"],
    ["--gpu-memory-utilization", "half"],
    ["--performance-mode", "fastest"],
    ["--enable-auto-tool-choice"],
    ["--dtype", "int3"],
    ["--compilation-config", "{broken"],
)


@pytest.fixture(scope="module")
def oracle(vllm_python):
    """One child for all: the machine's own CPU."""
    with Oracle(vllm_python, stand_in(inputs.node("cpu", None)), version=VERSION) as started:
        yield started


def folder_of(config, tmp_path):
    """A checkpoint's folder for both: ours reads the config as it is, vLLM's beside a tokenizer."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    return tmp_path / "model", write(config, tmp_path / "theirs")


def errors(argv, spec=None):
    """What `advisor check` finds at error level, of the command alone."""
    found = report.judge(read.command_line(argv), inputs.surface(VERSION), None, spec).findings
    return [f.text for f in found if f.level == "error"]


@pytest.mark.parametrize("flags", GOOD, ids=" ".join)
def test_both_take_it(flags, oracle, tmp_path):
    """A command that vLLM's parser and configuration take is without errors of ours."""
    _, theirs = folder_of(DENSE, tmp_path)
    argv = ("vllm", "serve", str(theirs), *flags)
    verdict = oracle.ask(argv, layers=False)
    assert (None, None, []) == (verdict.parser, verdict.configuration, errors(argv))


@pytest.mark.parametrize("flags", BAD, ids=" ".join)
def test_both_refuse_it(flags, oracle, tmp_path):
    """A command that vLLM's parser or configuration refuses has an error of ours."""
    _, theirs = folder_of(DENSE, tmp_path)
    argv = ("vllm", "serve", str(theirs), *flags)
    verdict = oracle.ask(argv, layers=False)
    assert (False, True) == (verdict.accepted, bool(errors(argv))), (verdict, errors(argv))


@pytest.mark.parametrize("config", [DENSE, MOE], ids=["dense", "experts"])
def test_recommended_command_is_taken_with_our_kernels(config, oracle, tmp_path):
    """1. recommend for this CPU, 2. ask vLLM. Result: accepted, and each layer gets the kernel that we name."""
    ours, theirs = folder_of(config, tmp_path)
    spec = inputs.model(str(ours), None, offline=True)
    facts = Facts(inputs.node("cpu", None), spec, PRESETS["chat"], inputs.surface(VERSION))
    best = recommend(facts, (), None, 1).plans[0]
    verdict = oracle.ask(renamed(best.command.argv, theirs))
    assert (True, None) == (verdict.accepted, verdict.failed)
    assert [True] * len(best.kernels) == [cell.agrees for cell in cells(best.kernels, verdict)]

"""The commands and variables of the text that this product began from, checked: what was wrong in them is found.

They stood there as `LLM(…)` calls for MiniMax-M3 and two `export` lines, with cards named beside them; as flags here.
"""

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import read, report
from vllm_advisor.vllm import surface


M3 = "MiniMaxAI/MiniMax-M3"
BASIC = f"vllm serve {M3} --quantization fp8 --kv-cache-dtype fp8_e5m2 --max-model-len 32768 -tp 4"
MXFP4 = f"vllm serve {M3} --quantization mxfp4 --kv-cache-dtype fp8_e4m3 --max-model-len 65536 -tp 8 -pp 1"
ROCM = f"VLLM_USE_TRITON_FLASH_ATTN=0 VLLM_ROCM_FP8_PADDING=1 vllm serve {M3} --quantization fp8_per_channel -tp 8"
SCALES = f"vllm serve {M3} --kv-cache-dtype fp8_e4m3 --calculate-kv-scales -tp 8"
EXPERTS = f"vllm serve {M3} --enable-eplb -tp 8"
AMPERE = "vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8"


def found(command, gpu, version):
    """Id to (level, text)."""
    (name, *_) = [w for w in command.split() if "/" in w and "=" not in w]
    node, model = gpus.node(gpu), models.find(name)
    judged = report.judge(read.command_line(command.split()), surface.load(version), node, model)
    return {f.id: (f.level, f.text) for f in judged.findings}


@pytest.mark.parametrize(
    ("command", "gpu", "version", "finding_id", "level"),
    [
        # `quantization="fp8", kv_cache_dtype="fp8_e5m2"`: refused by 0.24; in 0.33 no gain over e4m3, and an old name.
        (BASIC, "4xH100", "0.24.0", "KV-04", "error"),
        (BASIC, "4xH100", "0.33.0", "KV-03", "warning"),
        (BASIC, "4xH100", "0.33.0", "QNT-10", "warning"),
        (BASIC, "4xH100", "0.33.0", "MEM-01", "error"),
        # `quantization="mxfp4"` of a BF16 checkpoint: no conversion in 0.24; in 0.33 not on MI300X, no gain on H100.
        (MXFP4, "8xH100", "0.24.0", "QNT-26", "error"),
        (MXFP4, "8xMI300X", "0.24.0", "QNT-26", "error"),
        (MXFP4, "8xMI300X", "0.33.0", "QNT-09", "error"),
        (MXFP4, "8xH100", "0.33.0", "QNT-23", "warning"),
        # the two variables: one dead since 0.11, one at its default; the switch that matters is not among them.
        (ROCM, "8xMI300X", "0.24.0", "ENV-11", "warning"),
        (ROCM, "8xMI300X", "0.33.0", "ENV-11", "warning"),
        (ROCM, "8xMI300X", "0.24.0", "ENV-14", "note"),
        (ROCM, "8xMI300X", "0.33.0", "ENV-14", "note"),
        (ROCM, "8xMI300X", "0.33.0", "ENV-01", "warning"),
        # warming up fixes no scales: they are the checkpoint's or 1.0, and the flag is gone.
        (SCALES, "8xH200", "0.24.0", "KVS-02", "warning"),
        (SCALES, "8xH200", "0.33.0", "FLG-02", "error"),
        (SCALES, "8xH200", "0.33.0", "KV-05", "warning"),
        # A100 with an fp8 cache: one backend is left.
        (AMPERE, "A100-80GB", "0.33.0", "KV-06", "note"),
    ],
)
def test_what_the_seed_got_wrong_is_found(command, gpu, version, finding_id, level):
    """Each claim of it that a command can show."""
    assert level == found(command, gpu, version).get(finding_id, ("", ""))[0]


def test_eplb_without_expert_parallelism_is_an_error():
    """ "vLLM handles expert sharding internally" it does not: --enable-expert-parallel is needed."""
    errors = [text for level, text in found(EXPERTS, "8xH200", "0.33.0").values() if level == "error"]

    assert any("expert" in text.lower() for text in errors), errors


def test_the_dead_variable_is_told_what_stands_in_its_place():
    """The backend is a flag now."""
    command = read.command_line(ROCM.split())
    judged = report.judge(command, surface.load("0.33.0"))
    (dead,) = [f for f in judged.findings if f.id == "ENV-11"]

    assert ("VLLM_USE_TRITON_FLASH_ATTN", True) == (dead.subject, "--attention-backend" in dead.hint)
    assert (("VLLM_ROCM_FP8_PADDING" not in dict(report.mended(judged).invocation.env)), ()) == (
        True,
        dead.change.words,
    )

"""The text that this product began from, answered: its six-row matrix, its comparison, its pitfalls, its commands.

The text is an article on vLLM 0.24.0, MXFP4 and MiniMax-M3. Each statement stands here in our own words beside what
the source of vLLM 0.24.0 and 0.33.0 says. Paths are inside the `vllm` package of that version.
"""

# ruff: noqa: E501  # a table of sentences

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.vllm.surface import Surface

_NEWER = (0, 29)


class SeedAnswer(NamedTuple):
    """`verdict`: agree, agree in part, or differ. `advice` is what to do instead, `why` and `source` the ground."""

    verdict: str
    advice: str
    why: str
    source: str


class SeedRow(NamedTuple):
    """One row of the text's matrix, with our answer for each version."""

    situation: str
    quantization: str
    kv_cache: str
    reason: str
    old: SeedAnswer
    new: SeedAnswer

    def answer(self, surface: Surface) -> SeedAnswer:
        """Our answer for this version: that of 0.24.0 up to 0.28, that of 0.33.0 from there."""
        return self.new if surface.release >= _NEWER else self.old


class SeedClaim(NamedTuple):
    """One statement outside the matrix; `old` and `new` say true, false, partly or advice for 0.24.0 and 0.33.0."""

    topic: str
    says: str
    old: str
    new: str
    answer: str
    source: str


_A100 = SeedAnswer(
    "agree in part",
    "H100: BF16, or an FP8 checkpoint; A100: BF16. Leave the KV cache at auto.",
    "On H100 FP8 weights are multiplied in FP8; on A100 they go through Marlin, which saves memory and multiplies in "
    "BF16, so FP8 is no speed-up there.",
    "model_executor/kernels/linear/__init__.py; rules QNT-15, ACC-04",
)
_H100_WHY = (
    "FlashAttention 3 takes an e4m3 cache on sm90. It pays on long contexts; in public measurements it made short ones "
    "slower in four of six sources, and a checkpoint without scales gets 1.0."
)
_H100_ADVICE = "FP8 weights; the fp8 cache from long contexts on, with a checkpoint that carries KV scales."
_MI300X_WHY = (
    "0.24 put online fp8_per_channel on the ROCm list; it names how weights are scaled and has nothing to do with the "
    "cache's dtype. What switches MI300X to its fast kernels is VLLM_ROCM_USE_AITER=1, which is off by default."
)
_LONG = SeedAnswer(
    "differ",
    "FP8 weights; --kv-cache-dtype fp8 (that is e4m3) for chat and summaries, auto for retrieval. Never e5m2.",
    "e5m2 is exactly as large as e4m3 and one mantissa bit coarser. FlashAttention never takes it: on H100 the flag "
    "silently moves attention to FlashInfer.",
    "v1/attention/backends/fa_utils.py:293; rules KV-03, KV-07, KV-10",
)
_SENSITIVE = SeedAnswer(
    "agree",
    "BF16 with the cache at auto; an FP8 checkpoint from the model's publisher once it was measured on your own tasks.",
    "No code decides this. FP8 with scales by channel or block is close to BF16 in published evaluations; four bits, "
    "above all made while loading, are not for such work unmeasured.",
    "advice; rules ACC-01, ACC-03, ACC-04, KV-11",
)

SEED_ROWS: tuple[SeedRow, ...] = (
    SeedRow(
        "H100 or A100, enough money", "BF16 or FP8", "BF16", "accuracy first",
        _A100,
        _A100,
    ),
    SeedRow(
        "H100 SXM, throughput first", "FP8", "FP8 E4M3", "best balance of speed and accuracy",
        SeedAnswer("agree in part", f"{_H100_ADVICE} Online: --quantization fp8_per_channel.", _H100_WHY,
                   "v1/attention/backends/flash_attn.py:183-193; rules KV-05, KV-15"),
        SeedAnswer("agree in part", f"{_H100_ADVICE} Online: --quantization fp8_per_channel; fp8 is a deprecated name.",
                   _H100_WHY, "v1/attention/backends/fa_utils.py:282-313; rules KV-05, KV-15, QNT-10"),
    ),
    SeedRow(
        "Blackwell (B100, B200)", "MXFP4", "FP8", "native in hardware",
        SeedAnswer("differ", "An NVFP4 checkpoint, or MXFP4 where the model was published in it (gpt-oss). --quantization "
                   "mxfp4 does not convert a BF16 model.",
                   "0.24 reads mxfp4 only from a checkpoint. MXFP4 experts run with BF16 activations by default, NVFP4 "
                   "ones in 4 bits on both sides.",
                   "config/quantization.py:114; fused_moe/oracle/mxfp4.py:307-322, nvfp4.py:165"),
        SeedAnswer("agree in part", "An NVFP4 checkpoint first, MXFP4 where the model was published in it; online mxfp4 exists "
                   "and rounds without calibration, so measure it.",
                   "sm100 multiplies both formats. MXFP4 experts take BF16 activations unless --quantization-config asks "
                   "for MXFP8; NVFP4 experts run in 4 bits through TRTLLM.",
                   "fused_moe/oracle/mxfp4.py:402-435, nvfp4.py:203; rules ACC-02, QNT-09"),
    ),
    SeedRow(
        "AMD MI300X", "FP8 per channel", "FP8", "made for it in 0.24.0",
        SeedAnswer("agree in part", "FP8 per channel or in blocks, with VLLM_ROCM_USE_AITER=1.", _MI300X_WHY,
                   "platforms/rocm.py:459-484; envs.py; rules ENV-01, KV-15"),
        SeedAnswer("agree in part", "FP8 per channel or in blocks, with VLLM_ROCM_USE_AITER=1; MXFP4 checkpoints then have a "
                   "kernel as well, with BF16 arithmetic.", _MI300X_WHY,
                   "platforms/rocm.py:659-685; _aiter_ops.py:203-223; rules ENV-01, QNT-16"),
    ),
    SeedRow("long context (> 64k)", "FP8", "FP8 E5M2", "the cache's memory is the ceiling", _LONG, _LONG),
    SeedRow("sensitive work (code, maths)", "BF16", "BF16", "no risk with accuracy", _SENSITIVE, _SENSITIVE),
)  # fmt: skip

SEED_CLAIMS: tuple[SeedClaim, ...] = (
    SeedClaim(
        "memory comparison",
        "Build LLM() three times and read torch.cuda.max_memory_allocated() to compare BF16, FP8 and FP8 with an FP8 cache.",
        "false", "false",
        "The engine runs in another process, so that counter stays near zero; and vLLM always fills the share that "
        "gpu_memory_utilization allows with KV cache, so totals are equal by construction. Compare what the log says: "
        '"Model loading took", "Available KV cache memory" and "KV cache size". `advisor compare` sets the formats side by '
        "side from the memory and speed models, with no device, and MXFP4 too, which the script leaves out: with the kernel "
        "and the bits that it multiplies in (BF16 on H100, so memory is saved and arithmetic is not). `tuner compare` starts "
        "a server for each and puts the engine's own figures beside the estimates.",
        "v1/worker/gpu_worker.py:683-757",
    ),
    SeedClaim(
        "memory comparison",
        "The configuration with FP8 weights and fp8_e5m2 uses the least memory.",
        "false", "partly",
        "0.24 refuses fp8_e5m2 together with FP8 weights, online ones included; 0.33 still refuses it for FP8 checkpoints. "
        "fp8 (e4m3) takes the same bytes.",
        "0.24 model_executor/layers/attention/attention.py:166-183; 0.33 :205-219; rule KV-04",
    ),
    SeedClaim(
        "pitfall 1: calibration",
        "Run a few warm-up batches first, and the scales of the FP8 cache become accurate.",
        "false", "false",
        "Scales are read from the checkpoint when it is loaded and are 1.0 where it has none. In 0.24 --calculate-kv-scales "
        "computed them on the first forward pass (deprecated, off for hybrid models); 0.33 has no such flag. Use a "
        "checkpoint with KV scales, or fp8_per_token_head, which scales as it goes.",
        "quantization/kv_cache.py:131-173; 0.24 v1/worker/gpu_model_runner.py:4295-4300; rule KV-05",
    ),
    SeedClaim(
        "pitfall 2: experts",
        "Set tensor_parallel_size, and vLLM spreads whole experts over the GPUs by itself.",
        "false", "false",
        "With TP alone each expert is sliced over all ranks. Whole experts on ranks need --enable-expert-parallel; the "
        "degree is TP × DP. Uneven load is what --enable-eplb is for. pipeline_parallel_size has nothing to do with it.",
        "config/parallel.py:190, 566-583; rules PAR-05, PAR-12, PAR-14",
    ),
    SeedClaim(
        "pitfall 3: AMD",
        "Export VLLM_USE_TRITON_FLASH_ATTN=0 and VLLM_ROCM_FP8_PADDING=1 to reach the optimized kernels.",
        "false", "false",
        "The first variable exists in neither version and is reported as unknown; the second is 1 by default. The switch is "
        "VLLM_ROCM_USE_AITER=1, and --attention-backend where one wants a particular one.",
        "envs.py; _aiter_ops.py:203-223; rules ENV-01, ENV-03",
    ),
    SeedClaim(
        "MiniMax-M3 command 1",
        'quantization="fp8", kv_cache_dtype="fp8_e5m2", tensor_parallel_size=4.',
        "false", "partly",
        "0.24 stops while it builds the layers (fp8_e5m2 with FP8 weights). 0.33 has no such check for online FP8 "
        "and calls the spelling deprecated. 427 billion parameters in FP8 are about 400 GiB: four 80 GB devices hold less than 300 GiB. "
        "Use eight, --kv-cache-dtype fp8 and --block-size 128.",
        "0.24 model_executor/layers/attention/attention.py:166-183; rules MEM-01, KV-04, QNT-10",
    ),
    SeedClaim(
        "MiniMax-M3 command 2",
        'quantization="mxfp4", kv_cache_dtype="fp8_e4m3", tensor_parallel_size=8 on the BF16 checkpoint.',
        "false",
        "partly",
        "0.24 has no online mxfp4: it loads only checkpoints in that format. 0.33 converts while loading, after reading "
        "about 800 GiB of BF16, with no calibration, and its experts are multiplied in BF16 (Marlin on B200, FlashInfer's "
        "CUTLASS on H100). On MI300X M3's activation has no MXFP4 kernel at all; on MI350X AITER has one. M3 has 4 KV "
        "heads, so TP 8 keeps the cache twice. A published NVFP4 or MXFP8 checkpoint is the better start.",
        "config/quantization.py:195-238; fused_moe/oracle/mxfp4.py:402-435; rules QNT-09, QNT-12, QNT-20, ACC-02, PAR-03",
    ),
    SeedClaim(
        "MiniMax-M3",
        "0.24.0 supports it out of the box.",
        "true", "true",
        "It came with 0.24.0. Its sparse layers want a KV block size of 128.",
        "0.24 model_executor/models/registry.py:163; models/minimax_m3/common/sparse_attention.py:82; rules QNT-03, KV-17",
    ),
    SeedClaim(
        "limits: hardware",
        "MXFP4 needs hardware with native MX; on A100 it falls back to emulation and gets slower.",
        "false", "false",
        "On A100 Marlin unpacks MXFP4 weights inside the kernel: less memory, faster decode, BF16 arithmetic. Emulation "
        "comes last in the list and is not reached there. On MI300X, which has no MX units either, 0.33 needs AITER.",
        "fused_moe/oracle/mxfp4.py:307-322; 0.33 :402-435; rules QNT-14, QNT-16",
    ),
    SeedClaim(
        "limits: hardware",
        "MXFP4 wants H100 SXM or MI300X hardware; gfx950 is the MI325X.",
        "false", "false",
        "Native FP4 units: sm100, sm103, sm110, sm120, sm121 and gfx950. H100 and MI300X have none. MI325X is gfx942; gfx950 is "
        "MI350X and MI355X.",
        "platforms/rocm.py:82, 867; 0.33 :1251",
    ),
    SeedClaim(
        "limits: hardware",
        "Wait until software emulation of MXFP4 matures on H100.",
        "false", "false",
        "Nothing to wait for: gpt-oss runs there through Triton kernels, other models through FlashInfer's CUTLASS, with BF16 "
        "arithmetic.",
        "fused_moe/oracle/mxfp4.py:307-322; 0.33 :402-435",
    ),
    SeedClaim(
        "limits: retrieval",
        "An FP8 cache is risky when one fact must be found in 100k tokens; keep BF16 there.",
        "advice", "advice",
        "We agree and have a rule for it; the text's own row for long contexts says the opposite.",
        "rule KV-10",
    ),
    SeedClaim(
        "limits: rare experts",
        "A calibration set may miss rare experts, so quantized MoE models need a careful evaluation.",
        "advice", "advice",
        "We agree: the finding is shown for four-bit experts, and the accuracy of a plan is to be measured before adoption.",
        "rule ACC-09",
    ),
    SeedClaim(
        "format",
        "An MXFP4 element is a 4-bit mantissa under a shared exponent, floor(log2 max) of 32 values.",
        "partly", "partly",
        "32 values share one E8M0 scale, but each element is an FP4 number of its own, E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6. The "
        "exponent is floor(log2 max) - 2, so that the largest value lands in that range.",
        "quantization/utils/ocp_mx_utils.py:21; quantization/utils/mxfp4_utils.py:279",
    ),
    SeedClaim(
        "format",
        "Its error is an order of magnitude below that of FP8 with one scale a tensor.",
        "false", "false",
        "It has 4.25 bits a weight against 8: with outliers the finer scale helps, on ordinary weights E4M3's three mantissa "
        "bits win by far.",
        "advice: E2M1 has one mantissa bit, E4M3 three",
    ),
    SeedClaim(
        "cache size",
        "KV bytes = 2 × layers × attention heads × head size × tokens × bytes.",
        "false", "false",
        "It is KV heads, not attention heads (16 times fewer in MiniMax-M3). MLA keeps one latent vector instead, and sliding "
        "windows and fixed states do not grow with length.",
        "v1/kv_cache_interface.py:583-612, 729",
    ),
    SeedClaim(
        "cache size",
        "FP8 halves the cache of BF16.",
        "partly", "partly",
        "One byte for two in keys and values. Formats scaled by token and head add four bytes a head and token for K and for "
        "V. MiniMax-M3's index keys stay in 16 bits (--attention-config has a dtype of their own): its token falls to 0.66, "
        "as `advisor compare` shows.",
        "v1/kv_cache_interface.py:583-612; models/minimax_m3/common/indexer.py:147; 0.24 models/minimax_m3/nvidia/model.py:490",
    ),
)  # fmt: skip

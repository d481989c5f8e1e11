"""Flags, variables and values that came, went or were renamed, and what stands in their place: data.

Each row was read in the last release that had the name and the first that has the successor; `source` names the place
where vLLM says so, or the release from which on it is gone. `VALUE` stands for the value that was given.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One name, or one value of it, and its successor; `since` and `until` (exclusive) bound the target release.

    `value`: "" any, "on", "off", or the value itself. `keeps` False: what was asked for is lost, and `text` says what.
    """

    name: str
    value: str
    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    text: str
    source: str
    keeps: bool = True
    condition: str = ""
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()


def _flag(name: str, *words: str, text: str, source: str, value: str = "") -> Row:
    return Row(name, value, words, (), text, source)


def _gone(name: str, text: str, source: str, *, value: str = "", keeps: bool = False) -> Row:
    return Row(name, value, (), (), text, source, keeps)


def _env(name: str, new: str, source: str, *, value: str = "", to: str = "VALUE", text: str = "renamed") -> Row:
    return Row(name, value, (), ((new, to),), text, source)


def _choice(flag: str, old: str, new: str, text: str, source: str, *, keeps: bool = True) -> Row:
    return Row(flag, old, (flag, new), (), text, source, keeps)


_SPEC = "0.8.2 engine/arg_utils.py; gone in 0.8.3"
_SPEC_TEXT = "speculative decoding is configured in one place"
_ATTENTION = "0.14.1 config/attention.py:73-115; gone in 0.15.0"
_PROFILER = "0.15.1 envs.py; gone in 0.16.0 (config/profiler.py)"
_MOE_ENV = "0.23.0 envs.py (deprecated_env: use --moe-backend); gone in 0.24.0"
_LINEAR_ENV = "0.23.0 envs.py (deprecated_env: use --linear-backend); gone in 0.24.0"
_EPLB = "0.11.2 config/parallel.py:140-152; gone in 0.12.0"
_GUIDED = "0.11.2 engine/arg_utils.py; gone in 0.12.0"
_V0 = "an option of the V0 engine, which is gone"
_PARTIAL = "0.26.0 config/scheduler.py:70-74; gone in 0.27.0"

FLAGS: tuple[Row, ...] = (
    # Removed between the shipped versions.
    _gone("--calculate-kv-scales", "KV scales come from the checkpoint, or are 1.0; scales that are worked out at run "
          "time are those of --kv-cache-dtype fp8_per_token_head", "0.27.1 config/cache.py:112; gone in 0.28.0"),
    _gone("--override-attention-dtype", "the queries of attention keep the model's type",
          "0.27.1 config/model.py; gone in 0.28.0"),
    _gone("--max-num-partial-prefills", "1 was the default, and is what vLLM does", _PARTIAL, value="1", keeps=True),
    _gone("--max-num-partial-prefills", "no longer limits prompts in progress; --long-prefill-token-threshold still "
          "keeps one long prompt from taking a whole step", _PARTIAL),
    _gone("--max-long-partial-prefills", "1 was the default, and is what vLLM does", _PARTIAL, value="1", keeps=True),
    _gone("--max-long-partial-prefills", "no longer limits long prompts in progress; --long-prefill-token-threshold "
          "bounds the tokens of each", _PARTIAL),
    _gone("--enable-bf16x3-router-gemm", "vLLM chooses the router's kernel itself",
          "0.29.0 config/kernel.py:232; gone in 0.30.0", keeps=True),
    _flag("--enable-mamba-fine-grained-prefix-cache", "--enable-mamba-shared-prefix-checkpoint", text="renamed",
          source="0.30.0 config/cache.py:187; 0.31.0 config/cache.py:199"),
    _flag("--enable-mamba-shared-prefix-checkpoint", "--enable-mamba-fine-grained-prefix-cache",
          text="named so in 0.30", source="0.30.0 config/cache.py:187"),
    # Variables once, flags now, and the way back.
    Row("--prefix-cache-retention-interval", "", (), (("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VALUE"),),
        "a variable before 0.29", "0.28.0 envs.py; 0.29.0 engine/arg_utils.py"),
    Row("--mm-hasher-algorithm", "", (), (("VLLM_MM_HASHER_ALGORITHM", "VALUE"),), "a variable before 0.27",
        "0.26.0 envs.py; 0.27.0 engine/arg_utils.py"),
    Row("--log-level", "", (), (("VLLM_LOGGING_LEVEL", "VALUE"),), "a variable before 0.31",
        "0.31.0 config/logging.py"),
    _flag("--logging-config.pylogging-config-file", "--log-config-file", "VALUE", text="named so before 0.31",
          source="0.33.0 engine/arg_utils.py:456"),
    _flag("--device-memory-utilization", "--gpu-memory-utilization", "VALUE", text="the alias is new in 0.31",
          source="0.31.0 engine/arg_utils.py:1327"),
    _flag("--sleep-mode-backend", text="cumem is the only one before 0.33", value="cumem",
          source="0.33.0 config/model.py:379"),
    # Keys of configurations, as dotted flags with hyphens.
    Row("--attention-config.use-fp4-indexer-cache", "on", ("--attention-config.indexer_kv_dtype", "mxfp4"), (),
        "the indexer's cache names its format", "0.29.0 config/attention.py; gone in 0.30.0", since=(0, 30)),
    Row("--attention-config.use-fp4-indexer-cache", "off", (), (), "off is the default",
        "0.29.0 config/attention.py; gone in 0.30.0", since=(0, 30)),
    Row("--attention-config.use-prefill-decode-attention", "on", ("--attention-backend", "ROCM_ATTN"), (),
        "the backend that has such kernels", "0.28.0 config/attention.py; gone in 0.29.0", since=(0, 29)),
    Row("--attention-config.use-prefill-decode-attention", "off", (), (), "off is the default",
        "0.28.0 config/attention.py; gone in 0.29.0", since=(0, 29)),
    # Removed before 0.24.
    _gone("--swap-space", "requests are recomputed, never swapped out; the CPU can hold KV blocks by "
          "--kv-offloading-size", "0.17.1 config/cache.py; gone in 0.18.0", keeps=True),
    _flag("--rope-scaling", "--hf-overrides", '{"rope_parameters": VALUE}', text="an override of the model's "
          "configuration; give rope_theta in it too, where the model's own is not 10000",
          source="0.11.0 engine/arg_utils.py; gone in 0.11.1 (transformers_utils/config.py patch_rope_parameters)"),
    _flag("--rope-theta", "--hf-overrides", '{"rope_theta": VALUE}', text="an override of the model's configuration",
          source="0.11.0 engine/arg_utils.py; gone in 0.11.1"),
    _flag("--disable-log-requests", text="requests are not logged unless --enable-log-requests asks for it",
          source="0.16.0 engine/arg_utils.py:2088; gone in 0.17.0", value="on"),
    _flag("--disable-log-requests", "--enable-log-requests", text="the switch was turned round", value="off",
          source="0.16.0 engine/arg_utils.py:2088; gone in 0.17.0"),
    _gone("--logits-processor-pattern", "name the processors with --logits-processors",
          "0.16.0 engine/arg_utils.py; gone in 0.17.0"),
    _flag("--task", "--runner", "pooling", "--convert", "embed", text="said by runner and conversion", value="embed",
          source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--task", "--runner", "pooling", "--convert", "embed", text="said by runner and conversion",
          value="embedding", source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--task", "--runner", "pooling", "--convert", "classify", text="said by runner and conversion",
          value="classify", source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--task", "--runner", "pooling", "--convert", "classify", text="said by runner and conversion",
          value="score", source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--task", "--runner", "generate", text="said by the runner", value="generate",
          source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--task", text="auto is what vLLM does", value="auto",
          source="0.12.0 config/model.py:542; gone in 0.13.0"),
    _flag("--disable-mm-preprocessor-cache", "--mm-processor-cache-gb", "0", text="said by the cache's size",
          source="0.12.0 engine/arg_utils.py:1191; gone in 0.13.0"),
    _flag("--cuda-graph-sizes", "--cudagraph-capture-sizes", "VALUE", text="renamed",
          source="0.12.0 engine/arg_utils.py:1704; gone in 0.13.0"),
    _flag("--enable-multimodal-encoder-data-parallel", "--mm-encoder-tp-mode", "data", text="said by the mode",
          source="0.12.0 engine/arg_utils.py:1211; gone in 0.13.0"),
    _flag("--num-redundant-experts", "--eplb-config.num_redundant_experts", "VALUE", text="moved", source=_EPLB),
    _flag("--eplb-window-size", "--eplb-config.window_size", "VALUE", text="moved", source=_EPLB),
    _flag("--eplb-step-interval", "--eplb-config.step_interval", "VALUE", text="moved", source=_EPLB),
    _flag("--eplb-log-balancedness", "--eplb-config.log_balancedness", "true", text="moved", source=_EPLB),
    _flag("--guided-decoding-backend", "--structured-outputs-config.backend", "VALUE", text="moved", source=_GUIDED),
    _gone("--guided-decoding-disable-fallback", "the configuration of structured outputs has no such option any more",
          "0.12.0 config/structured_outputs.py; not in 0.24.0"),
    _flag("--guided-decoding-disable-any-whitespace", "--structured-outputs-config.disable_any_whitespace", "true",
          text="moved", source=_GUIDED),
    _flag("--guided-decoding-disable-additional-properties",
          "--structured-outputs-config.disable_additional_properties", "true", text="moved", source=_GUIDED),
    _flag("--override-pooler-config", "--pooler-config", "VALUE", text="renamed", source=_GUIDED),
    _gone("--num-lookahead-slots", "follows from the speculative configuration", _GUIDED, keeps=True),
    _gone("--lora-extra-vocab-size", "adapters with tokens of their own are not served any more", _GUIDED),
    _gone("--enable-lora-bias", "adapters with a bias are not served any more",
          "0.11.0 engine/arg_utils.py; gone in 0.11.1"),
    _flag("--max-seq-len-to-capture", text="graphs are bounded by batch size alone (--max-cudagraph-capture-size)",
          source="0.10.2 engine/arg_utils.py; gone in 0.11.0"),
    _gone("--scheduler-delay-factor", _V0, "0.10.2 engine/arg_utils.py; gone in 0.11.0", keeps=True),
    _gone("--preemption-mode", _V0, "0.10.2 engine/arg_utils.py; gone in 0.11.0", keeps=True),
    _gone("--disable-async-output-proc", _V0, "0.10.2 engine/arg_utils.py; gone in 0.11.0", keeps=True),
    _gone("--num-scheduler-steps", f"{_V0}; --async-scheduling, on by default, hides the scheduler's time",
          "0.10.0 engine/arg_utils.py; gone in 0.10.1", keeps=True),
    _gone("--multi-step-stream-outputs", _V0, "0.10.0 engine/arg_utils.py; gone in 0.10.1", keeps=True),
    _gone("--use-v2-block-manager", _V0, "0.9.2 engine/arg_utils.py; gone in 0.10.0", keeps=True),
    _gone("--device", "vLLM takes the device that its build is for", "0.9.2 engine/arg_utils.py; gone in 0.10.0",
          keeps=True),
    _gone("--enable-reasoning", "--reasoning-parser alone turns it on", "0.9.2 entrypoints; gone in 0.10.0",
          keeps=True),
    _gone("--tokenizer-pool-size", _V0, "0.9.2 engine/arg_utils.py; gone in 0.10.0", keeps=True),
    _gone("--tokenizer-pool-type", _V0, "0.9.2 engine/arg_utils.py; gone in 0.10.0", keeps=True),
    _gone("--qlora-adapter-name-or-path", "bitsandbytes adapters are not served any more",
          "0.9.2 engine/arg_utils.py; gone in 0.10.0"),
    _gone("--enable-prompt-adapter", "prompt adapters are not served any more",
          "0.10.1.1 engine/arg_utils.py; gone in 0.10.2"),
    _flag("--max-context-len-to-capture", text="graphs are bounded by batch size alone (--max-cudagraph-capture-size)",
          source="0.6.3.post1 engine/arg_utils.py; gone in 0.6.4"),
    _flag("--worker-use-ray", "--distributed-executor-backend", "ray", text="said by the backend",
          source="0.6.6.post1 engine/arg_utils.py; gone in 0.7.0"),
    _gone("--engine-use-ray", _V0, "0.6.0 engine/arg_utils.py; gone in 0.6.1", keeps=True),
    _gone("--quantization-param-path", "KV scales come from the checkpoint",
          "0.6.6.post1 engine/arg_utils.py; gone in 0.7.0"),
    _flag("--speculative-model", "--speculative-config.model", "VALUE", text=_SPEC_TEXT, source=_SPEC),
    _flag("--num-speculative-tokens", "--speculative-config.num_speculative_tokens", "VALUE", text=_SPEC_TEXT,
          source=_SPEC),
    _flag("--ngram-prompt-lookup-max", "--speculative-config.prompt_lookup_max", "VALUE", text=_SPEC_TEXT,
          source=_SPEC),
    _flag("--ngram-prompt-lookup-min", "--speculative-config.prompt_lookup_min", "VALUE", text=_SPEC_TEXT,
          source=_SPEC),
    _flag("--speculative-draft-tensor-parallel-size", "--speculative-config.draft_tensor_parallel_size", "VALUE",
          text=_SPEC_TEXT, source=_SPEC),
    _flag("--speculative-max-model-len", "--speculative-config.max_model_len", "VALUE", text=_SPEC_TEXT, source=_SPEC),
    _flag("--speculative-model-quantization", "--speculative-config.quantization", "VALUE", text=_SPEC_TEXT,
          source=_SPEC),
    # Never there, but often written.
    _flag("--expert-parallel", "--enable-expert-parallel", text="its name is longer", source="config/parallel.py"),
    _flag("--expert-parallel-size", "--enable-expert-parallel",
          text="the degree is TP × DP and cannot be given", source="config/parallel.py"),
)  # fmt: skip

ENV: tuple[Row, ...] = (
    # Removed between the shipped versions.
    _env("VLLM_TRITON_ATTN_USE_TD", "VLLM_TRITON_USE_TD", "0.28.0 envs.py; gone in 0.29.0"),
    _env("VLLM_TRITON_USE_TD", "VLLM_TRITON_ATTN_USE_TD", "0.26.0 envs.py", text="named so before 0.26"),
    Row("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "", ("--prefix-cache-retention-interval", "VALUE"), (),
        "a flag since 0.29", "0.29.0 engine/arg_utils.py; the variable is gone in 0.30.0"),
    Row("VLLM_MM_HASHER_ALGORITHM", "", ("--mm-hasher-algorithm", "VALUE"), (), "a flag since 0.27",
        "0.27.0 engine/arg_utils.py; the variable is gone in 0.30.0"),
    Row("VLLM_NIXL_EP_MAX_NUM_RANKS", "", ("--elastic-ep-max-dp-size", "VALUE"), (),
        "the most ranks that elastic expert parallelism may grow to, as data-parallel ranks: divide by TP",
        "0.29.0 envs.py:2109; 0.30.0 config/parallel.py", keeps=False),
    Row("VLLM_PLE_CPU_OFFLOAD", "off", ("--engram-config.cpu_offload", "false"), (), "part of the Engram options",
        "0.30.0 config/engram.py:27; gone in 0.31.0"),
    Row("VLLM_PLE_CPU_OFFLOAD", "on", (), (), "on is the default", "0.31.0 config/engram.py"),
    _env("VLLM_KIMI_K3_GEMM_RS", "VLLM_ENABLE_GEMM_RS", "0.30.0 envs.py; 0.31.0 envs.py"),
    _env("VLLM_ENABLE_GEMM_RS", "VLLM_KIMI_K3_GEMM_RS", "0.30.0 envs.py", text="named so before 0.31"),
    _env("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2", "0.31.0 envs.py", value="on",
         to="a8w4", text="one variable names the activation's format"),
    _env("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2", "0.31.0 envs.py", value="off",
         to="a16w4", text="one variable names the activation's format"),
    _env("AITER_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "0.28.0 envs.py"),
    _env("AITER_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2", "0.31.0 envs.py", value="on", to="a8w4"),
    _gone("VLLM_XPU_ENABLE_XPU_GRAPH", "Intel GPUs capture graphs like others; --enforce-eager turns them off",
          "0.30.0 platforms/xpu.py:301; gone in 0.31.0", keeps=True),
    Row("VLLM_TEST_FORCE_FP8_MARLIN", "on", ("--linear-backend", "marlin", "--moe-backend", "marlin"), (),
        "the kernels are chosen by name", "0.28.0 model_executor/layers/fused_moe/oracle/fp8.py:374; gone in 0.29.0"),
    _gone("VLLM_TEST_FORCE_FP8_MARLIN", "off is the default", "0.28.0 envs.py:1097", value="off", keeps=True),
    _gone("VLLM_CI_USE_S3", "for vLLM's own tests", "0.25.1 envs.py; gone in 0.26.0", keeps=True),
    _gone("VLLM_TPU_BUCKET_PADDING_GAP", "the TPU build is a project of its own", "0.25.1 envs.py; gone in 0.26.0"),
    _gone("VLLM_TPU_MOST_MODEL_LEN", "the TPU build is a project of its own", "0.25.1 envs.py; gone in 0.26.0"),
    _gone("VLLM_CPU_SGL_KERNEL", "the CPU build chooses its kernels itself", "0.27.1 envs.py; gone in 0.28.0",
          keeps=True),
    _gone("VLLM_ROCM_USE_AITER_PAGED_ATTN", "nothing read it; --attention-backend chooses",
          "0.25.1 envs.py; gone in 0.26.0", keeps=True),
    _gone("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "AITER chooses between its FP4 kernels",
          "0.32.0 envs.py; gone in 0.33.0", keeps=True),
    _gone("VLLM_ROCM_AITER_MLA_DCP_VERIFY", "one kernel is left", "0.32.0 envs.py; gone in 0.33.0", keeps=True),
    _gone("VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS", "not a switch any more", "0.32.0 envs.py; gone in 0.33.0",
          keeps=True),
    Row("VLLM_ROCM_MONO_DECODE", "on", ("--monokernel",), (), "a flag since 0.33", "0.32.0 envs.py; 0.33.0 "
        "config/kernel.py:299"),
    _gone("VLLM_ROCM_MONO_DECODE", "off is the default", "0.32.0 envs.py; gone in 0.33.0", value="off", keeps=True),
    Row("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", "",
        ("--compilation-config.pass_config.fi_allreduce_fusion_max_size_mb", "VALUE"), (),
        "one size for the number of ranks that is used, not a table", "0.25.1 envs.py:1602; 0.26.0 "
        "config/compilation.py:161", keeps=False),
    _gone("VLLM_ENGINE_ITERATION_TIMEOUT_S", "nothing read it since V0", "0.31.0 envs.py; gone in 0.32.0", keeps=True),
    _gone("Q_SCALE_CONSTANT", "only for --calculate-kv-scales, which is gone", "0.27.1 envs.py", keeps=True),
    _gone("K_SCALE_CONSTANT", "only for --calculate-kv-scales, which is gone", "0.27.1 envs.py", keeps=True),
    _gone("V_SCALE_CONSTANT", "only for --calculate-kv-scales, which is gone", "0.27.1 envs.py", keeps=True),
    _gone("VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "Ray starts the workers and passes no tensors any more",
          "0.32.0 envs.py; gone in 0.33.0", keeps=True),
    _gone("VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM", "Ray starts the workers and passes no tensors any more",
          "0.32.0 envs.py; gone in 0.33.0", keeps=True),
    _gone("VLLM_USE_RAY_WRAPPED_PP_COMM", "Ray starts the workers and passes no tensors any more",
          "0.32.0 envs.py; gone in 0.33.0", keeps=True),
    _gone("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "the second Ray executor is the only one",
          "0.32.0 envs.py; gone in 0.33.0", value="on", keeps=True),
    _gone("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "the first Ray executor is gone", "0.32.0 envs.py; gone in 0.33.0"),
    # Removed before 0.24.
    *(Row("VLLM_ATTENTION_BACKEND", old, ("--attention-backend", new), (), "a flag, and the name changed", _ATTENTION)
      for old, new in (("FLASH_ATTN_VLLM_V1", "FLASH_ATTN"), ("TRITON_ATTN_VLLM_V1", "TRITON_ATTN"),
                       ("FLASHINFER_VLLM_V1", "FLASHINFER"), ("TRITON_MLA_VLLM_V1", "TRITON_MLA"),
                       ("FLASHMLA_VLLM_V1", "FLASHMLA"), ("CUTLASS_MLA_VLLM_V1", "CUTLASS_MLA"),
                       ("ROCM_AITER_MLA_VLLM_V1", "ROCM_AITER_MLA"), ("ROCM_FLASH", "ROCM_ATTN"),
                       ("TORCH_SDPA", "CPU_ATTN"))),
    *(_gone("VLLM_ATTENTION_BACKEND", "that kernel is not part of vLLM any more; it chooses another itself",
            _ATTENTION, value=old)
      for old in ("XFORMERS", "PALLAS", "PALLAS_VLLM_V1", "IPEX", "HPU_ATTN", "DUAL_CHUNK_FLASH_ATTN",
                  "BLOCK_SPARSE_FLASH_ATTN", "DIFFERENTIAL_FLASH_ATTN")),
    Row("VLLM_ATTENTION_BACKEND", "", ("--attention-backend", "VALUE"), (), "a flag", _ATTENTION),
    Row("VLLM_FLASH_ATTN_VERSION", "", ("--attention-config.flash_attn_version", "VALUE"), (), "a flag", _ATTENTION),
    Row("VLLM_V1_USE_PREFILL_DECODE_ATTENTION", "on", ("--attention-config.use_prefill_decode_attention", "true"), (),
        "a flag", _ATTENTION, until=(0, 29)),
    Row("VLLM_V1_USE_PREFILL_DECODE_ATTENTION", "on", ("--attention-backend", "ROCM_ATTN"), (),
        "the backend that has such kernels", f"{_ATTENTION}; the flag is gone in 0.29.0"),
    _gone("VLLM_V1_USE_PREFILL_DECODE_ATTENTION", "off is the default", _ATTENTION, value="off", keeps=True),
    Row("VLLM_USE_TRTLLM_ATTENTION", "on", ("--attention-config.use_trtllm_attention", "true"), (), "a flag",
        _ATTENTION),
    Row("VLLM_USE_TRTLLM_ATTENTION", "off", ("--attention-config.use_trtllm_attention", "false"), (), "a flag",
        _ATTENTION),
    Row("VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION", "on",
        ("--attention-config.disable_flashinfer_q_quantization", "true"), (), "a flag", _ATTENTION),
    Row("VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH", "",
        ("--attention-config.flash_attn_max_num_splits_for_cuda_graph", "VALUE"), (), "a flag", _ATTENTION),
    Row("VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL", "on", ("--attention-config.mla_prefill_backend", "TRTLLM_RAGGED"),
        (), "a choice of the MLA prefill", f"{_ATTENTION}; 0.22.0 config/attention.py"),
    Row("VLLM_DISABLE_FLASHINFER_PREFILL", "on", ("--attention-config.mla_prefill_backend", "FLASH_ATTN"),
        (), "a choice of the MLA prefill", f"{_ATTENTION}; 0.22.0 config/attention.py"),
    _gone("VLLM_USE_CUDNN_PREFILL", "that kernel is not part of vLLM any more",
          "0.21.0 config/attention.py; gone in 0.22.0", value="on"),
    Row("VLLM_USE_TRITON_FLASH_ATTN", "on", ("--attention-backend", "TRITON_ATTN"), (), "backends are chosen by name",
        "0.11.0 envs.py; gone in 0.11.1"),
    _gone("VLLM_USE_TRITON_FLASH_ATTN", "backends are chosen by --attention-backend (ROCM_ATTN, ROCM_AITER_FA), and "
          "the default is not Triton's", "0.11.0 envs.py; gone in 0.11.1", value="off", keeps=True),
    _gone("VLLM_USE_V1", "V1 is the only engine", "0.11.0 envs.py; gone in 0.11.1", value="on", keeps=True),
    _gone("VLLM_USE_V1", "the V0 engine is gone", "0.11.0 envs.py; gone in 0.11.1"),
    _env("VLLM_USE_AITER_UNIFIED_ATTENTION", "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION",
         "0.11.0 envs.py; gone in 0.11.1"),
    _env("VLLM_ROCM_USE_TRITON_ROPE", "VLLM_ROCM_USE_AITER_TRITON_ROPE", "0.11.0 envs.py; gone in 0.11.1"),
    _env("VLLM_SKIP_DEEP_GEMM_WARMUP", "VLLM_DEEP_GEMM_WARMUP", "0.11.0 envs.py; gone in 0.11.1", value="on",
         to="skip", text="one variable says how much"),
    _gone("VLLM_USE_DEEP_GEMM_E8M0_HOPPER", "VLLM_USE_DEEP_GEMM_E8M0 decides", "0.11.0 envs.py; gone in 0.11.1",
          keeps=True),
    Row("VLLM_ALL2ALL_BACKEND", "", ("--all2all-backend", "VALUE"), (), "a flag",
        "0.11.2 config/parallel.py:466; gone in 0.16.0"),
    Row("VLLM_MM_INPUT_CACHE_GIB", "", ("--mm-processor-cache-gb", "VALUE"), (), "a flag",
        "0.12.0 engine/arg_utils.py:1200; gone in 0.13.0"),
    Row("VLLM_TORCH_PROFILER_DIR", "",
        ("--profiler-config.profiler", "torch", "--profiler-config.torch_profiler_dir", "VALUE"), (), "flags",
        _PROFILER),
    Row("VLLM_TORCH_PROFILER_WITH_STACK", "on", ("--profiler-config.torch_profiler_with_stack", "true"), (), "a flag",
        _PROFILER),
    Row("VLLM_TORCH_PROFILER_RECORD_SHAPES", "on", ("--profiler-config.torch_profiler_record_shapes", "true"), (),
        "a flag", _PROFILER),
    Row("VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY", "on", ("--profiler-config.torch_profiler_with_memory", "true"), (),
        "a flag", _PROFILER),
    Row("VLLM_TORCH_PROFILER_WITH_FLOPS", "on", ("--profiler-config.torch_profiler_with_flops", "true"), (),
        "a flag", _PROFILER),
    Row("VLLM_TORCH_CUDA_PROFILE", "on", ("--profiler-config.profiler", "cuda"), (), "a flag", _PROFILER),
    _gone("VLLM_FUSED_MOE_CHUNK_SIZE", "experts are not computed in chunks any more", "0.17.1 envs.py; gone in "
          "0.18.0", keeps=True),
    _gone("VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING", "experts are not computed in chunks any more",
          "0.17.1 envs.py; gone in 0.18.0", keeps=True),
    _gone("VLLM_MOE_DP_CHUNK_SIZE", "experts are not computed in chunks any more", "0.19.1 envs.py; gone in 0.20.0",
          keeps=True),
    _gone("VLLM_ENABLE_MOE_DP_CHUNK", "experts are not computed in chunks any more", "0.19.1 envs.py; gone in 0.20.0",
          keeps=True),
    _gone("VLLM_SLEEP_WHEN_IDLE", "not a switch any more", "0.17.1 envs.py; gone in 0.18.0", keeps=True),
    _gone("VLLM_ROCM_CUSTOM_PAGED_ATTN", "--attention-backend chooses", "0.18.1 envs.py; gone in 0.19.0", keeps=True),
    _gone("VLLM_RPC_TIMEOUT", "nothing read it since V0", "0.22.1 envs.py; gone in 0.23.0", keeps=True),
    _gone("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "blocks are leased for kv_lease_duration seconds (extra options of "
          "--kv-transfer-config, default 30)", "0.21.0 envs.py; 0.22.0 distributed/kv_transfer/kv_connector/v1/nixl"),
    Row("VLLM_MXFP4_USE_MARLIN", "on", ("--moe-backend", "marlin", "--linear-backend", "marlin"), (),
        "the kernels are chosen by name", _MOE_ENV),
    Row("VLLM_FLASHINFER_MOE_BACKEND", "throughput", ("--moe-backend", "flashinfer_cutlass"), (), "chosen by name",
        _MOE_ENV),
    Row("VLLM_FLASHINFER_MOE_BACKEND", "latency", ("--moe-backend", "flashinfer_trtllm"), (), "chosen by name",
        _MOE_ENV),
    Row("VLLM_FLASHINFER_MOE_BACKEND", "masked_gemm", ("--moe-backend", "flashinfer_cutedsl"), (), "chosen by name",
        _MOE_ENV),
    Row("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "on", ("--moe-backend", "flashinfer_trtllm", "--quantization-config",
        '{"moe": {"activation": "mxfp8"}}'), (), "the kernel and the activation's format are named", _MOE_ENV),
    Row("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "on", ("--moe-backend", "flashinfer_cutlass",
        "--quantization-config", '{"moe": {"activation": "mxfp8"}}'), (),
        "the kernel and the activation's format are named", _MOE_ENV),
    *(_gone(f"VLLM_USE_FLASHINFER_MOE_{kind}", "off: name the kernel that you want with --moe-backend", _MOE_ENV,
            value="off") for kind in ("FP4", "FP8", "FP16", "MXFP4_BF16")),
    *(_gone(f"VLLM_USE_FLASHINFER_MOE_{kind}", "vLLM takes FlashInfer's kernels by itself where it has one; "
            "--moe-backend flashinfer_cutlass or flashinfer_trtllm forces them", _MOE_ENV, value="on", keeps=True)
      for kind in ("FP4", "FP8", "FP16", "MXFP4_BF16")),
    *(Row("VLLM_NVFP4_GEMM_BACKEND", old, ("--linear-backend", old.replace("-", "_")), (), "chosen by name",
          _LINEAR_ENV) for old in ("flashinfer-b12x", "flashinfer-cudnn", "flashinfer-trtllm", "flashinfer-cutlass",
                                   "cutlass", "marlin", "emulation")),
    Row("VLLM_USE_FBGEMM", "on", ("--linear-backend", "fbgemm"), (), "chosen by name", _LINEAR_ENV),
    Row("VLLM_USE_NVFP4_CT_EMULATIONS", "on", ("--linear-backend", "emulation"), (), "chosen by name", _LINEAR_ENV),
)  # fmt: skip

_ONLINE = "model_executor/model_loader/weight_utils.py: fp8 is deprecated for online quantization since 0.31.0"
_NEVER = "config/cache.py CacheDType"
_QUANT = "model_executor/layers/quantization/__init__.py"

_ORIGINAL = "serve the original checkpoint with online quantization (fp8_per_tensor; mxfp4 since 0.28)"
# Quantization methods that no shipped release has, what to serve instead, the last release that had them.
_GONE_METHODS = (
    ("bitsandbytes", _ORIGINAL, "0.27.1"),
    ("gguf", "serve the original checkpoint, or a compressed-tensors one", "0.23.0"),
    ("hqq", _ORIGINAL, "0.14.1"),
    ("aqlm", "serve a compressed-tensors checkpoint", "0.9.2"),
    ("deepspeedfp", _ORIGINAL, "0.14.1"),
    ("tpu_int8", "the TPU build is a project of its own", "0.22.1"),
    ("ipex", "AWQ and GPTQ checkpoints run by awq and gptq", "0.15.1"),
    ("petit_nvfp4", "NVFP4 checkpoints run by modelopt_fp4", "0.19.1"),
    ("bitblas", "GPTQ checkpoints run by gptq", "0.15.1"),
    ("rtn", _ORIGINAL, "0.14.1"),
)  # fmt: skip

CHOICES: tuple[Row, ...] = (
    Row("--quantization", "fp8", ("--quantization", "fp8_per_tensor"), (),
        "for a checkpoint that is not quantized; fp8 is then deprecated", _ONLINE, condition="unquantized",
        since=(0, 31)),
    _choice("--quantization", "ptpc_fp8", "fp8_per_channel", "the same scheme: scales by channel and by token",
            f"0.18.1 {_QUANT}; gone in 0.19.0; fp8_per_channel since 0.24.0 config/quantization.py"),
    _choice("--quantization", "nvfp4", "modelopt_fp4", "renamed", f"0.8.5 {_QUANT}; gone in 0.9.0"),
    _choice("--quantization", "marlin", "gptq", "its checkpoints are read as GPTQ", f"0.9.2 {_QUANT}; gone in 0.10.0"),
    _choice("--quantization", "cpu_awq", "awq", "one method for all devices", f"0.22.1 {_QUANT}; gone in 0.23.0"),
    _choice("--quantization", "cpu_gptq", "gptq", "one method for all devices", f"0.13.0 {_QUANT}; gone in 0.14.0"),
    _choice("--quantization", "auto-round", "inc", "its checkpoints are read by inc", f"0.14.1 {_QUANT}"),
    _choice("--quantization", "nvfp4_per_token", "fp8_per_tensor", "online FP4 needs 0.26; FP8 takes twice the memory",
            "0.26.0 config/quantization.py", keeps=False),
    *(Row("--quantization", old, (), (), f"gone: {text}", f"{source} {_QUANT}", keeps=False)
      for old, text, source in _GONE_METHODS),
    _choice("--kv-cache-dtype", "fp8_e4m3fn", "fp8_e4m3", "a name of other projects", _NEVER),
    _choice("--kv-cache-dtype", "fp8_e4m3fnuz", "fp8_e4m3", "vLLM chooses the format of the device", _NEVER),
    _choice("--kv-cache-dtype", "bf16", "bfloat16", "the name in full", _NEVER),
    _choice("--kv-cache-dtype", "fp16", "float16", "the name in full", _NEVER),
    _choice("--kv-cache-dtype", "half", "float16", "the name in full", _NEVER),
    _choice("--kv-cache-dtype", "int8", "int8_per_token_head", "int8 has scales by token and head", _NEVER),
    _choice("--kv-cache-dtype", "int4_per_token_head", "int8_per_token_head", "four bits need 0.25.1; twice the "
            "memory a token", "0.25.1 config/cache.py", keeps=False),
    _choice("--kv-cache-dtype", "nvfp4_4over6", "nvfp4", "another choice of scales needs 0.28", "0.28.0 "
            "config/cache.py", keeps=False),
    _choice("--kv-cache-dtype", "nvfp4_ds_mla", "fp8_ds_mla", "four bits need 0.30; 656 bytes a token and layer, not "
            "352", "0.30.0 config/cache.py", keeps=False),
    _choice("--all2all-backend", "naive", "allgather_reducescatter", "removed, and what vLLM falls back to",
            "config/parallel.py:537"),
    _choice("--all2all-backend", "pplx", "allgather_reducescatter", "removed, and what vLLM falls back to",
            "config/parallel.py:537"),
    Row("--mamba-cache-mode", "all", (), (), "states are kept at aligned blocks wherever prefixes are cached",
        "0.33.0 engine/arg_utils.py:462", since=(0, 33)),
    _choice("--mamba-cache-mode", "all", "align", "states are kept at aligned blocks", "0.31.0 config/cache.py:62; "
            "gone in 0.32.0"),
    *(_choice("--attention-backend", old, new, "renamed", "v1/attention/backends/registry.py AttentionBackendEnum")
      for old, new in (("flash_attn_vllm_v1", "FLASH_ATTN"), ("triton_attn_vllm_v1", "TRITON_ATTN"),
                       ("flashinfer_vllm_v1", "FLASHINFER"), ("rocm_flash", "ROCM_ATTN"))),
    _choice("--tokenizer-mode", "slow", "auto", "slow tokenizers are gone", "0.31.0 config/model.py TokenizerMode",
            keeps=False),
    _choice("--moe-backend", "flashinfer_moe_ep_mega_cutedsl", "flashinfer_moe_ep_cutedsl", "renamed",
            "0.31.0 config/kernel.py; 0.32.0 config/kernel.py"),
    _choice("--moe-backend", "flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_cutedsl", "named so before 0.32",
            "0.31.0 config/kernel.py"),
    *(Row("--spec-method", old, (), (), "drafts of that kind are not served any more; eagle3 or mtp heads are",
          "0.32.0 config/speculative.py; gone in 0.33.0", keeps=False) for old in ("medusa", "mlp_speculator")),
    _choice("--kda-prefill-backend", "flashinfer", "auto", "needs 0.30", "0.30.0 engine/arg_utils.py"),
)  # fmt: skip

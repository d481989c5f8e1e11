"""What a new vLLM does otherwise though no flag says so: one row a change of behaviour, with its first release.

Each was read in the last release without it and the first with it; `advisor migrate` says those that concern a
command, `docs/vllm-versions.md` all of them.
"""

from __future__ import annotations

from typing import NamedTuple


class Behaviour(NamedTuple):
    """One change. `since` is the first release; `before` and `after` say what is done; `concerns` whom, for people."""

    id: str
    since: str
    area: str
    concerns: str
    before: str
    after: str
    source: str

    @property
    def release(self) -> tuple[int, ...]:
        """(0, 28, 0)."""
        return tuple(int(n) for n in self.since.split("."))


MEMORY, SPEED, SERVING, ACCURACY, LOGS = "Memory", "Speed", "Serving", "Accuracy", "Logs"

BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour("rocm-gptq-marlin", "0.25.1", SERVING, "--quantization gptq_marlin on AMD",
              "allowed, and run as gptq", "refused: write gptq", "platforms/rocm.py supported_quantization"),
    Behaviour("rocm-graphs", "0.26.0", MEMORY, "AMD GPUs with graphs (no --enforce-eager)",
              "graphs are not counted before the KV cache is sized, and come on top of it",
              "they are estimated and taken off first: a smaller cache, fewer failures at capture",
              "v1/worker/gpu_worker.py determine_available_memory (is_cuda, then is_cuda_alike)"),
    Behaviour("in-flight", "0.26.0", MEMORY, "models with sliding-window or chunked-local layers",
              "such a layer keeps its window and one step's tokens",
              "it keeps its window and two steps' tokens, for two batches are in flight: fewer requests fit",
              "v1/kv_cache_interface.py; config/vllm.py max_in_flight_tokens"),
    Behaviour("hybrid-prefixes", "0.26.0", MEMORY, "hybrid models (Mamba, GDN, KDA layers)",
              "prefix caching is off unless asked for; one state a request",
              "prefix caching is on; more states a request, so fewer fit (--no-enable-prefix-caching: as before)",
              "config/model.py is_prefix_caching_supported"),
    Behaviour("summary", "0.26.0", LOGS, "who reads the start-up log",
              "the memory summary with the advice for --kv-cache-memory is a debug line", "it is an info line",
              "v1/worker/gpu_worker.py"),
    Behaviour("moe-padding", "0.27.0", SPEED, "mixture-of-experts models",
              "padded tokens go through the experts", "they are skipped (VLLM_MOE_SKIP_PADDING=0: as before)",
              "envs.py VLLM_MOE_SKIP_PADDING"),
    Behaviour("accounting", "0.27.0", MEMORY, "every GPU",
              "what is charged is torch's peak plus what grew outside of torch",
              "what is charged is all that the device lost since start, with what torch's allocator holds in reserve, "
              "plus the transient peak above it", "utils/mem_utils.py memory_profiling"),
    Behaviour("modelopt-fp8", "0.27.0", SERVING, "FP8 checkpoints of ModelOpt on A100",
              "refused below compute capability 8.9", "run from 8.0 on, as weight-only",
              "model_executor/layers/quantization/modelopt.py get_min_capability"),
    Behaviour("batch-160", "0.28.0", MEMORY, "GPUs of 160 GiB and more (B200, MI300X, MI325X, MI355X)",
              "a server takes 8192 tokens a step", "it takes 16384: faster prefill, more memory for activations, a "
              "smaller KV cache (--max-num-batched-tokens 8192: as before)", "engine/arg_utils.py get_batch_defaults"),
    Behaviour("capture-1024", "0.28.0", MEMORY, "compute capability 10.x (B200, GB200, B300)",
              "graphs are captured up to 512 tokens", "up to 1024: more memory for graphs, longer start",
              "config/vllm.py _set_cudagraph_sizes"),
    Behaviour("mamba-align", "0.28.0", MEMORY, "Mamba-2 models with prefix caching",
              "a state is kept at every block", "states are kept at the end of the prompt alone: more requests fit, "
              "fewer prefixes hit", "model_executor/models/config.py MambaModelConfig"),
    Behaviour("mxfp4-online", "0.28.0", SERVING, "--quantization mxfp4 with an unquantized checkpoint",
              "only MXFP4 checkpoints load", "linear layers and experts are quantized while loading",
              "config/quantization.py _ONLINE_SHORTHANDS"),
    Behaviour("bitsandbytes", "0.28.0", SERVING, "bitsandbytes checkpoints and --quantization bitsandbytes",
              "served", "gone", "model_executor/layers/quantization/__init__.py"),
    Behaviour("kv-scales", "0.28.0", ACCURACY, "FP8 KV caches without scales in the checkpoint",
              "--calculate-kv-scales works them out at the first forward pass",
              "the flag is gone: they are 1.0, or dynamic with fp8_per_token_head", "config/cache.py"),
    Behaviour("kv-line", "0.28.0", LOGS, "who reads the start-up log",
              "KV cache size and maximum concurrency are two lines, and the first begins with GPU",
              "they are one line (since 0.30.0 it begins with the kind of device)", "v1/core/kv_cache_utils.py"),
    Behaviour("rocm-inc", "0.28.0", SERVING, "--quantization inc on AMD", "refused", "allowed",
              "platforms/rocm.py supported_quantization"),
    Behaviour("null-block", "0.29.0", MEMORY, "caches that hold barely one request",
              "the check counts all blocks", "it leaves the null block out: a start that just fitted fails",
              "v1/core/kv_cache_utils.py get_kv_cache_configs"),
    Behaviour("flashinfer-allreduce", "0.29.0", SPEED, "tensor parallelism on NVIDIA",
              "FlashInfer's all-reduce is off", "it is on (VLLM_ALLREDUCE_USE_FLASHINFER=0: as before)",
              "envs.py VLLM_ALLREDUCE_USE_FLASHINFER"),
    Behaviour("fp8-online", "0.31.0", ACCURACY, "--quantization fp8 with an unquantized checkpoint",
              "the fp8 method quantizes while loading", "it is taken for fp8_per_tensor, with a warning, and caches of "
              "e5m2 are not refused beside it any more", "model_executor/model_loader/weight_utils.py"),
    Behaviour("slow-tokenizer", "0.31.0", SERVING, "--tokenizer-mode slow", "served", "refused",
              "config/model.py TokenizerMode"),
    Behaviour("cascade", "0.32.0", SPEED, "--no-disable-cascade-attn", "cascade attention can be turned on",
              "it is gone, and the flag does nothing", "engine/arg_utils.py"),
    Behaviour("cors", "0.32.0", SERVING, "browsers that call the server from another origin",
              "any origin is allowed", "none is: --allowed-origins '[\"https://your.site\"]' allows one",
              "entrypoints/launchers/cli_args.py allowed_origins"),
    Behaviour("deepep-hybrid", "0.32.0", SPEED, "--all2all-backend deepep_v2",
              "one kind of transport", "NVLink and RDMA together (VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE=0: as before)",
              "envs.py VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE"),
    Behaviour("nvfp4-kv-cards", "0.32.0", SERVING, "--kv-cache-dtype nvfp4",
              "only compute capability 10.x takes it", "8.x, 9.0 and 12.x take it too (no heads of 64, no sinks)",
              "v1/attention/backends/flashinfer.py _nvfp4_kv_on_fa2, supports_combination"),
    Behaviour("humming-hopper", "0.32.0", SPEED, "four-bit and weight-only kernels on Hopper",
              "Marlin comes first", "Humming comes before Marlin", "model_executor/layers/quantization/utils/humming"),
    Behaviour("mamba2-checkpoint", "0.32.0", MEMORY, "Mamba-2 models with prefix caching",
              "two states a request", "one more, for the state at a prefill's checkpoint",
              "model_executor/layers/mamba/mamba_mixer2.py get_kv_cache_spec"),
    Behaviour("gdn-checkpoint", "0.33.0", MEMORY, "models with GDN layers (Qwen3-Next, Qwen3.5) and prefix caching on "
              "Hopper, and on Blackwell with CUDA 13", "two states a request", "one more",
              "model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py get_kv_cache_spec"),
    Behaviour("gb10", "0.33.0", MEMORY, "GB10 (DGX Spark)", "8192 tokens and 1024 sequences a step",
              "2048 and 256", "engine/arg_utils.py get_batch_defaults"),
    Behaviour("aiter-bmm", "0.33.0", SPEED, "AMD with VLLM_ROCM_USE_AITER=1 and a model with latent attention",
              "AITER's batched FP8 and FP4 products are on",
              "they are off (VLLM_ROCM_USE_AITER_FP8BMM=1, VLLM_ROCM_USE_AITER_FP4BMM=1: as before)", "envs.py"),
    Behaviour("float-kv", "0.33.0", SERVING, "--kv-cache-dtype float16 or bfloat16",
              "any of the two passes", "it must be the model's own type, else start-up stops",
              "config/vllm.py _reject_mismatched_float_kv_cache"),
    Behaviour("kv-dtype-parser", "0.33.0", SERVING, "a misspelt --kv-cache-dtype",
              "the parser stops with the choices", "the parser passes it (plug-ins may add names), and start-up stops "
              "later", "config/cache.py cache_dtype"),
    Behaviour("mamba-mode", "0.33.0", SERVING, "--mamba-cache-mode",
              "chooses how states are kept", "deprecated and without effect: prefix caching decides",
              "engine/arg_utils.py:462"),
    Behaviour("medusa", "0.33.0", SERVING, "speculative decoding with medusa or mlp_speculator", "served", "gone",
              "config/speculative.py"),
)  # fmt: skip

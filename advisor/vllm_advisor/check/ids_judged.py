"""Findings of meaning: what only the model, the device or other options of the command tell.

Rows as in `ids.py`. Ids of the decision matrix (rules/table.py) keep their meaning there; their level and the option
that they are about stand in `shown.py`.
"""

from __future__ import annotations

from vllm_advisor.check.finding import ERROR, NOTE, WARNING
from vllm_advisor.check.shown import SHOWN


_PARALLEL, _MODEL, _ARGUMENTS = "config/parallel.py", "config/model.py", "engine/arg_utils.py"
_SPECULATIVE, _CONFIG, _SCHEDULER = "config/speculative.py", "config/vllm.py", "config/scheduler.py"
_ENVS = "envs.py"

# fmt: off
JUDGED: tuple[tuple[str, str, str, str], ...] = (
    # two settings against each other
    ("CFL-01", WARNING, "Graph settings that --enforce-eager overrides", _CONFIG + ":1766; 0.24.0 :1061"),
    ("CFL-02", NOTE,    "--kv-cache-memory-bytes sizes the cache, not --gpu-memory-utilization", "v1/worker/gpu_worker.py:656; 0.24.0 :412"),
    ("CFL-03", ERROR,   "Hybrid and external load balancing at once", _ARGUMENTS + ":2383; 0.24.0 :1903"),
    ("CFL-04", ERROR,   "More local replicas than replicas", _PARALLEL + ":545; 0.24.0 :457"),
    ("CFL-05", ERROR,   "External load balancing of one replica", _PARALLEL + ":551; 0.24.0 :463"),
    ("CFL-06", ERROR,   "An external replica's rank is missing", _ARGUMENTS + ":2468; 0.24.0 :1956"),
    ("CFL-07", ERROR,   "External data parallelism of a model without experts", _ARGUMENTS + ":2456; 0.24.0 :1950"),
    ("CFL-08", ERROR,   "Redundant experts without EPLB", _PARALLEL + ":585; 0.24.0 :489"),
    ("CFL-09", ERROR,   "An EPLB setting that does not exist or cannot be combined", _PARALLEL + ":64-131; 0.24.0 :57-112"),
    ("CFL-10", ERROR,   "Two batches at once over an all-to-all backend that cannot do it", _CONFIG + ":2180; 0.24.0 :1427"),
    ("CFL-11", ERROR,   "Decode context parallelism that does not span the prefill ranks", _PARALLEL + ":593-606"),
    ("CFL-12", ERROR,   "The same setting by two options that exclude each other", _ARGUMENTS + ":2119, :2730, :2836; 0.24.0 :1717, :2188, :2286"),
    ("CFL-13", ERROR,   "A prompt must fit one step when prompts are not cut into chunks", _SCHEDULER + ":316; 0.24.0 :274"),
    ("CFL-14", WARNING, "A batch larger than all sequences together", _SCHEDULER + ":347; 0.24.0 :294"),
    ("CFL-15", ERROR,   "A threshold above the longest request", _SCHEDULER + ":355; 0.24.0 :308"),
    ("CFL-16", ERROR,   "An option that needs another one", "entrypoints/common/cli_args.py:456; 0.24.0 entrypoints/openai/cli_args.py:397"),
    ("CFL-17", ERROR,   "Fewer adapters on the host than on the device", "config/lora.py:123; 0.24.0 :112"),
    ("CFL-18", ERROR,   "Adapters are named and --enable-lora is off", "entrypoints/openai/models/serving.py:124-140; v1/worker/lora_model_runner_mixin.py:91; 0.24.0 :71"),
    ("CFL-19", ERROR,   "Asynchronous scheduling with what does not allow it", _CONFIG + ":1666-1684; 0.24.0 :940-962"),
    ("CFL-20", WARNING, "Whole sequences are kept for layers that look at a window", "v1/core/kv_cache_planning.py:1127; config/vllm.py:2228"),
    ("CFL-21", WARNING, "Expert settings without expert parallelism", _PARALLEL + " (expert_placement_strategy, all2all_backend)"),
    ("CFL-22", WARNING, "An all-to-all backend that is gone", _PARALLEL + ":537; 0.24.0 :449"),
    ("CFL-23", ERROR,   "Routed experts are not returned through pipeline stages", _CONFIG + ":1217; 0.24.0 :875"),
    ("SPC-01", ERROR,   "A speculative method that this version does not have", _SPECULATIVE + ":74; 0.24.0 :60"),
    ("SPC-02", WARNING, "A deprecated name of a speculative method", _SPECULATIVE + ":1246; 0.24.0 :589"),
    ("SPC-03", ERROR,   "Speculative decoding without the number of tokens", _SPECULATIVE + ":1614; 0.24.0 :821"),
    ("SPC-04", ERROR,   "A key that the speculative configuration does not have", _SPECULATIVE + ":407; 0.24.0 :75"),
    ("SPC-05", ERROR,   "The checkpoint has no draft layers for MTP", _SPECULATIVE + ":1252; model config"),
    ("SPC-06", ERROR,   "Speculative decoding needs a draft, or a method that needs none", _SPECULATIVE + ":1292; 0.24.0 :617"),
    ("DTY-01", ERROR,   "A dtype that the quantization method does not take", _CONFIG + ":937-943; 0.24.0 :630"),
    ("DTY-02", ERROR,   "FP16 for a model that is unstable in it", _MODEL + ":2398-2416; 0.24.0 :1950"),
    ("DTY-03", ERROR,   "BF16 on a device that has none", "platforms/cuda.py:638"),
    ("DTY-04", WARNING, "FP32 weights: twice the memory, a fraction of the speed", "config/model.py dtype"),
    ("QNT-25", ERROR,   "--quantization names another method than the checkpoint's", _MODEL + ":1452-1462; 0.24.0 :1039"),
    ("QNT-26", ERROR,   "--quantization names a format of checkpoints, and this checkpoint is not quantized", _MODEL + " (_verify_quantization); model_loader/weight_utils.py:356-368"),
    ("QNT-27", ERROR,   "Not a method of this platform", "platforms/rocm.py:659-685; 0.24.0 :459-484"),
    ("QNT-32", ERROR,   "Our plugin's quantization, and the environment does not have the plugin, or may not", "vllm_mx_kernels/vllm_plugin.py; plugins/__init__.py (load_plugins_by_group)"),
    ("BCK-01", ERROR,   "The MoE backend does not run on this device", "fused_moe/experts/*.py (_supports_current_device)"),
    ("BCK-02", WARNING, "An MoE backend for a model without experts", "config/kernel.py moe_backend"),
    ("KVS-01", NOTE,    "Whether the checkpoint brings KV scales is not known", "quantization/kv_cache.py:131-173"),
    ("KVS-02", WARNING, "--calculate-kv-scales: deprecated, and from the first batch only", "0.24.0 config/cache.py:256-266; v1/worker/gpu_model_runner.py:4295-4300"),
    ("KVS-03", WARNING, "--calculate-kv-scales has no effect here", "0.24.0 model_executor/models/config.py:276-289; config/cache.py:110"),
    # memory and scales: ids of the decision matrix, with more in the text
    ("KV-05",  WARNING, "The checkpoint brings no KV scales", "quantization/kv_cache.py:131-173"),
    ("MEM-01", ERROR,   "The weights do not fit", "v1/worker/gpu_worker.py:683-757"),
    ("MEM-02", ERROR,   "One request does not fit the KV cache", "v1/core/kv_cache_utils.py:1061-1130"),
    ("MEM-03", WARNING, "Whether it fits cannot be told", "advice"),
    ("MEM-04", WARNING, "It fits on average, and not at worst", "public measurements: builds differ by 5 to 15 %"),
    ("MEM-06", ERROR,   "Others hold the device's memory", "v1/worker/utils.py:716-760"),
    ("MEM-08", ERROR,   "Something else than weights and one request does not fit", "v1/worker/utils.py:720-760; config/compilation.py:1511-1533"),
    ("MEM-10", NOTE,    "It fits, with these figures", "v1/worker/gpu_worker.py:683-757"),
    ("MEM-11", NOTE,    "--max-model-len auto: the length that is predicted", _MODEL + ":2639; v1/core/kv_cache_utils.py"),
    ("MEM-12", NOTE,    "What the memory model leaves out", "advice"),
    ("MEM-13", ERROR,   "A KV cache larger than the device has room for", "v1/worker/gpu_worker.py:656; 0.24.0 :412"),
    ("FIT-01", NOTE,    "What could not be judged", "advice"),
    # performance
    ("PRF-01", WARNING, "No CUDA graphs and no compilation", _CONFIG + ":1766; 0.24.0 :1061"),
    ("PRF-02", WARNING, "DeepGEMM is off where it would run block-FP8", "utils/deep_gemm.py:100-118; kernels/linear/__init__.py:497-506"),
    ("PRF-03", NOTE,    "The weights save memory and no arithmetic on this device", "kernels/linear/__init__.py:458-506; fused_moe/oracle/"),
    ("PRF-04", NOTE,    "Fewer tokens a step than the device's default", _ARGUMENTS + ":2940-3036; 0.24.0 :2375-2451"),
    ("PRF-05", NOTE,    "--performance-mode throughput doubles both batch limits", _ARGUMENTS + ":3184; 0.24.0 :2601"),
    ("PRF-06", NOTE,    "Prefix caching is off", "config/cache.py enable_prefix_caching"),
    ("PRF-07", WARNING, "Prompts are not cut into chunks", _SCHEDULER + " enable_chunked_prefill"),
    ("PRF-08", WARNING, "Weights on the host are read over the bus in each step", "config/offload.py:23"),
    ("PRF-09", NOTE,    "Scheduling waits for each step", _CONFIG + ":1666-1720; 0.24.0 :936-1008"),
    ("PRF-10", WARNING, "A debugging switch makes every launch wait", "CUDA and HIP programming guides; envs.py"),
    ("PRF-11", WARNING, "Fast links are switched off", "distributed/device_communicators/; NCCL user guide"),
    ("PRF-12", NOTE,    "More sequences than the cache can hold", "v1/core/kv_cache_utils.py:1061-1130"),
    # security
    ("SEC-01", WARNING, "Open to the network without a key", "entrypoints/launchers/launcher.py:378; 0.24.0 entrypoints/openai/api_server.py:540"),
    ("SEC-02", WARNING, "Code from the model's repository is run", "transformers_utils/config.py trust_remote_code"),
    ("SEC-03", WARNING, "Development endpoints are open", "entrypoints/launchers/api_server/routers.py:46; 0.24.0 entrypoints/openai/api_server.py:197"),
    ("SEC-04", NOTE,    "The key stands on the command line", "proc(5): /proc/PID/cmdline is readable by all users"),
    ("SEC-05", WARNING, "Any web page may call the server", "entrypoints/serve/middleware/register.py:24; 0.24.0 entrypoints/openai/api_server.py:242"),
    ("SEC-06", WARNING, "Profiling endpoints are open, outside of what the key guards", "entrypoints/serve/profile/api_router.py:38"),
    ("SEC-07", WARNING, "Requests may read files of the host", "config/model.py:231; multimodal/media/connector.py:178"),
    ("SEC-08", WARNING, "Pickle is accepted between processes", _ENVS + ":1712; 0.24.0 :1504"),
    ("SEC-09", WARNING, "Adapters can be loaded by request", _ENVS + ":1204; 0.24.0 :1085"),
    ("SEC-10", NOTE,    "Prompts are written to the log", "entrypoints/common/cli_args.py; envs.py:831"),
    ("SEC-11", WARNING, "Requests may bring their own template code or processor arguments", "entrypoints/common/cli_args.py"),
    ("SEC-12", NOTE,    "Media are fetched from any address that a request names", "config/model.py allowed_media_domains"),
    ("SEC-13", WARNING, "The key is empty: nothing is guarded", "entrypoints/serve/middleware/register.py:33; 0.24.0 entrypoints/openai/api_server.py:258"),
    ("SEC-14", NOTE,    "A secret stands in a file", "advice"),
    *((rule, row.level, row.title, "the decision matrix, rules/table.py") for rule, row in SHOWN.items()),
)
# fmt: on

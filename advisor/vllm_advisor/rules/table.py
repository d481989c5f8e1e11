"""The decision matrix: one row a rule. Ids never change meaning; docs/rules.md is generated from this table.

`says` is formatted with what the predicate returns. A path in `source` is inside the `vllm` package: of 0.33.0 unless a
version stands before it. `public measurements` are what issues, logs and benchmark reports printed, gathered for this product;
`advice` is our own judgement and has no code behind it. Factors are small: they decide between plans that the speed
estimate cannot tell apart, and they are advice too.
"""

from __future__ import annotations

from vllm_advisor.rules import predicates_kv as kv
from vllm_advisor.rules import predicates_memory as memory
from vllm_advisor.rules import predicates_parallel as parallel
from vllm_advisor.rules import predicates_plugin as ours
from vllm_advisor.rules import predicates_quality as quality
from vllm_advisor.rules import predicates_quantization as quant
from vllm_advisor.rules import predicates_serving as serving
from vllm_advisor.rules import predicates_widths as widths
from vllm_advisor.rules.rule import Rule, discourage, info, prefer, veto


# fmt: off
RULES: tuple[Rule, ...] = (
    #    id        when                                          verdict           says, source, hint
    Rule("MEM-01", memory.weights_exceed_memory,                 veto,             "weights need {need} on each rank with {layout}, {have} are usable", "v1/worker/gpu_worker.py:683-757", "more ranks, or a checkpoint with fewer bits"),
    Rule("MEM-02", memory.cache_too_small,                       veto,             "{left} are left for the KV cache: it holds {holds} tokens, one request of {asked} does not fit ({limits})", "v1/core/kv_cache_utils.py:1061-1130", "--max-model-len {holds}, an fp8 cache, or more ranks"),
    Rule("MEM-03", memory.cannot_tell,                           veto,             "whether it fits cannot be told: {missing}", "advice"),
    Rule("MEM-04", memory.fits_only_on_average,                  discourage(.85),  "it fits on average ({mid} for KV); at worst {low} are left, and one request needs {one}", "public measurements: the same configuration differs by 5 to 15 % between builds"),
    Rule("MEM-05", memory.cache_limits_the_load,                 info,             "the KV cache holds {held} requests of {length} tokens, {wanted} are in flight: the others wait", "v1/core/kv_cache_utils.py:1061-1130"),
    Rule("MEM-06", memory.others_hold_memory,                    veto,             "{free} are free on a device and vLLM asks for {requested}: it refuses to start", "v1/worker/utils.py:720-760", "stop what holds the memory, or --gpu-memory-utilization {utilization}"),
    Rule("MEM-07", memory.room_for_the_load,                     info,             "{left} for KV on each rank hold {held} requests of {length} tokens, {wanted} are in flight", "v1/core/kv_cache_utils.py:1061-1130"),
    Rule("MEM-08", memory.other_limits,                          veto,             "{limits}", "v1/worker/utils.py:720-760; platforms/cpu.py; config/compilation.py:1511-1533"),

    Rule("PAR-01", parallel.heads_not_divisible,                 veto,             "{heads} attention heads do not split {tp} ways", "config/model.py:1559"),
    Rule("PAR-02", parallel.kv_heads_do_not_divide,              veto,             "{kv_heads} KV heads are neither split nor repeated evenly over {tp} ranks", "model_executor/models/llama.py:148-156"),
    Rule("PAR-03", parallel.kv_heads_replicated,                 discourage(.97),  "{kv_heads} KV heads on {tp} ranks: the cache is kept {copies} times", "v1/kv_cache_interface.py:583-612", "decode context parallelism, or data parallel replicas of fewer ranks"),
    Rule("PAR-04", parallel.latent_replicated,                   discourage(.97),  "MLA's latent cache is whole on each of {tp} ranks", "v1/kv_cache_interface.py:729", "data parallel attention or decode context parallelism keeps it once"),
    Rule("PAR-05", parallel.expert_block_cut,                    veto,             "{ways} ranks cut an expert to {width} columns, which its {block}-wide blocks of scales do not divide", "0.24 quantization/utils/fp8_utils.py validate_fp8_block_shape_moe; oracle/fp8.py:293", "--enable-expert-parallel keeps experts whole, or fewer TP ranks"),
    Rule("PAR-06", parallel.expert_block_refined,                discourage(.93),  "{width} columns of an expert a rank: vLLM refines the {block}-wide scales to {finer}, which only Triton reads", "oracle/fp8.py:293-326"),
    Rule("PAR-07", parallel.dense_block_cut,                     veto,             "{tp} ranks cut the feed-forward layer to {width} columns, which its {block}-wide blocks of scales do not divide", "quantization/utils/fp8_utils.py:1296-1344", "fewer TP ranks"),
    Rule("PAR-08", parallel.group_cut,                           veto,             "{ways} ranks cut the input of a layer to {width}, which groups of {group} do not divide", "quantization/utils/marlin_utils.py:173-197", "fewer TP ranks"),
    Rule("PAR-09", parallel.experts_uneven,                      discourage(.95),  "{experts} experts do not divide over {ranks} ranks: the fullest sets the pace", "fused_moe/layer.py:274"),
    Rule("PAR-10", parallel.eplb_experts_uneven,                 veto,             "EPLB needs equal shares: {experts} experts on {ranks} ranks", "fused_moe/layer.py:274-279"),
    Rule("PAR-11", parallel.experts_of_a_dense_model,            veto,             "expert parallelism, and the model has no experts", "config/model.py:1498"),
    Rule("PAR-12", parallel.eplb_without_ep,                     veto,             "EPLB without --enable-expert-parallel", "config/parallel.py:569"),
    Rule("PAR-13", parallel.eplb_on_one_rank,                    veto,             "EPLB needs TP × DP above 1", "config/parallel.py:571-583"),
    Rule("PAR-14", parallel.ep_adds_latency,                     discourage(.95),  "expert parallelism on {ranks} ranks of one node", "public measurements: it raised time per token in 19 of 23 matched pairs"),
    Rule("PAR-15", parallel.dcp_not_dividing_tp,                 veto,             "decode context parallelism {dcp} does not divide TP {tp}", "config/parallel.py:598-600"),
    Rule("PAR-16", parallel.dcp_beyond_kv_heads,                 veto,             "{kv_heads} KV heads on {tp} ranks allow decode context parallelism of {most}, not {dcp}", "config/model.py:1578-1600"),
    Rule("PAR-17", parallel.dcp_uneven_queries,                  veto,             "{queries} query heads a KV head do not divide by decode context parallelism {dcp}", "config/model.py:1601-1607"),
    Rule("PAR-18", parallel.more_ranks_than_devices,             veto,             "{layout} needs {ranks} devices, there are {devices}", "config/parallel.py:1068"),
    Rule("PAR-19", parallel.tp_leaves_the_island,                discourage(.7),   "TP {tp} leaves the {island} devices that NVLink or xGMI joins", "advice: each layer ends in an all-reduce over the slowest pair", "TP {island} inside, PP or DP across"),
    Rule("PAR-20", parallel.tp_over_pcie,                        discourage(.93),  "each all-reduce of TP {tp} goes over {link}", "advice: each layer ends in two all-reduces", "PP or DP needs far less of the link"),
    Rule("PAR-21", parallel.tp_leaves_the_node,                  discourage(.4),   "TP {tp} spans nodes of {here} devices: each layer waits for the network ({network})", "advice", "TP {here} inside, PP or DP across"),
    Rule("PAR-22", parallel.pp_where_tp_would_do,                discourage(.9),   "{pp} pipeline stages where TP {ways} would share each layer's work", "advice: a token passes all stages one after the other"),
    Rule("PAR-23", parallel.more_stages_than_layers,             veto,             "{pp} pipeline stages for {layers} layers", "distributed/utils.py get_pp_indices"),
    Rule("PAR-24", parallel.stages_uneven,                       info,             "{layers} layers on {pp} stages: the longest has {longest} and sets the pace", "distributed/utils.py get_pp_indices"),
    Rule("PAR-25", parallel.replicas_hold_all_weights,           info,             "each of {dp} replicas holds {what}", "fused_moe/config.py flatten_tp_across_dp_and_pcp"),
    Rule("PAR-26", parallel.tp_inside_the_island,                info,             "TP {tp} stays among devices joined by {link}: each layer's all-reduce takes the fast way", "catalog, probe"),
    Rule("PAR-27", parallel.ranks_over_mig_slices,               veto,             "{ranks} ranks on MIG slices ({partition}): slices cannot reach each other, and a process sees one", "NVIDIA MIG user guide, application considerations", "one server a slice, each with its own CUDA_VISIBLE_DEVICES=MIG-…"),

    Rule("QNT-01", quant.device_not_supported,                   veto,             "{reason}", "vLLM docs, installation requirements"),
    Rule("QNT-02", quant.architecture_not_registered,            veto,             "{architecture} is {when} (vLLM {version})", "model_executor/models/registry.py", "another vLLM version, see `advisor recommend --vllm`"),
    Rule("QNT-03", quant.minimax_m3_too_early,                   veto,             "MiniMax-M3 came with vLLM 0.24.0, this is {version}", "0.24 model_executor/models/registry.py:163"),
    Rule("QNT-04", quant.method_removed,                         veto,             "bitsandbytes is no longer in vLLM {version}", "quantization/__init__.py", "a checkpoint in FP8, AWQ or compressed-tensors"),
    Rule("QNT-05", quant.method_unknown,                         veto,             "vLLM {version} has no quantization method {method}", "quantization/__init__.py"),
    Rule("QNT-06", quant.not_on_rocm,                            veto,             "{method} is not in the ROCm list of vLLM {version}", "platforms/rocm.py:659-685; 0.24 :459-484"),
    Rule("QNT-07", quant.capability_too_low,                     veto,             "{method} needs compute capability {need}, the device has {have}", "quantization/*.py get_min_capability"),
    Rule("QNT-08", quant.converts_a_quantized_checkpoint,        veto,             "--quantization {flag} converts BF16 or FP16 checkpoints, this one is already {method}", "config/model.py _verify_quantization", "leave the flag out"),
    Rule("QNT-09", quant.cannot_convert_online,                  veto,             "vLLM {version} cannot convert this model to {flag} while loading on {arch}; it can to: {offered}", "quantization/online/base.py; config/quantization.py"),
    Rule("QNT-10", quant.deprecated_spelling,                    discourage(.99),  "--quantization fp8 is a deprecated spelling in vLLM {version}", "model_executor/model_loader/weight_utils.py:356-364", "--quantization fp8_per_tensor, or better fp8_per_channel"),
    Rule("QNT-11", quant.no_linear_kernel,                       veto,             "vLLM {version} has no kernel for {scheme} linear layers on {arch}", "model_executor/kernels/linear/__init__.py"),
    Rule("QNT-12", quant.no_expert_kernel,                       veto,             "vLLM {version} has no kernel for {scheme} experts with {act} on {arch}", "fused_moe/oracle/", "{hint}"),
    Rule("QNT-13", quant.scheme_not_known,                       discourage(.9),   "how vLLM runs {method} here is not in our tables", "advice"),
    Rule("QNT-14", quant.emulated,                               discourage(.4),   "{scheme} has no unit on {arch}: {kernel} unpacks the weights to BF16", "kernels/linear/__init__.py; fused_moe/oracle/", "BF16, or FP8 where the device has it"),
    Rule("QNT-15", quant.weight_only_at_saturation,              discourage(.95),  "{kernel} computes in BF16 on {arch}: {scheme} saves memory, not arithmetic, and {concurrency} requests may be bound by that", "public measurements: 4-bit weights gave 7,100 to 9,612 tok/s where BF16 gave 10,338 (Qwen3-8B, A100)"),
    Rule("QNT-16", quant.mxfp4_without_aiter,                    discourage(.85),  "MXFP4 experts on {arch} without AITER: {kernel}; with it vLLM takes {better}", "oracle/mxfp4.py:402-465; 0.24 :540-549, :607-611", "VLLM_ROCM_USE_AITER=1"),
    Rule("QNT-17", quant.fp8_blocks_on_ada,                      info,             "block-FP8 linear layers run through Marlin on sm89 in vLLM {version}: FP8 weights, BF16 arithmetic", "kernels/linear/__init__.py:497-506"),
    Rule("QNT-18", quant.no_bf16_on_turing,                      info,             "sm75 has no BF16: vLLM serves the model in FP16", "platforms/cuda.py:262"),
    Rule("QNT-19", quant.fnuz,                                   info,             "{arch} has the FNUZ kind of FP8: vLLM converts weights and doubles KV scales", "quantization/kv_cache.py:128-150"),
    Rule("QNT-20", quant.converts_at_each_start,                 discourage(.99),  "{flag} reads {read} of full precision and converts it at each start", "quantization/online/base.py"),
    Rule("QNT-21", quant.scheme_kept,                            info,             "{checkpoint} is served as it was published, in {scheme}: {kernel} multiplies in {bits} bits", "kernels/linear/__init__.py; fused_moe/oracle/"),
    Rule("QNT-22", quant.halves_the_weights,                     info,             "{flag}: {kernel} multiplies in {bits} bits on {arch}, at twice the rate or more and with half the bytes or fewer", "kernels/linear/__init__.py; fused_moe/oracle/"),
    Rule("QNT-23", quant.converted_for_memory_only,              discourage(.85),  "{flag}: {kernel} multiplies in BF16 on {arch}, so it saves memory and no arithmetic", "kernels/linear/__init__.py; fused_moe/oracle/", "BF16 where it fits"),
    Rule("QNT-24", widths.input_not_in_groups,                   veto,             "{flag} shares a scale among {group} elements, and the input of {layer} is {width} on a rank: vLLM refuses to load it", "quantization/online/mxfp8.py:56-62; online/mxfp4.py:101-106; models/siglip.py:421-428", "fp8_per_channel or fp8_per_block, or other TP ranks"),
    Rule("QNT-28", quant.weight_only_nvfp4_on_rocm,              veto,             "the checkpoint's weight-only NVFP4 layers insist on Marlin, which {arch} does not have", "kernels/linear/__init__.py:1227-1256; 0.24 :881-892", "an FP8 or BF16 checkpoint"),
    Rule("QNT-29", ours.plugin_refuses,                          veto,             "advisor_mxfp4 cannot serve this: {reason}", "vllm_mx_kernels/vllm_plugin.py; vllm_config.py; vllm_moe.py why_not"),
    Rule("QNT-30", ours.needs_our_plugin,                        info,             "{kernel} multiplies in {bits} bits: our plugin and no part of vLLM, so the server's environment has to have it; {beside}", "vllm_mx_kernels/vllm_plugin.py; entry point group vllm.general_plugins", "{install}"),
    Rule("QNT-31", ours.plugin_saves_memory_only,                discourage(.85),  "advisor_mxfp4 multiplies in BF16 on {arch}, so it saves memory and no arithmetic", "vllm_mx_kernels/device.py", "BF16 where it fits"),
    Rule("QNT-33", quant.by_reference_on_amx,                    veto,             "{kernel} goes through oneDNN's reference on a processor with AMX: 1,000 times as slow as BF16 or more where it was run", "measured: torch 2.13 _scaled_mm, 16 x 576 x 1536; ONEDNN_VERBOSE says matmul,ref", "vLLM 0.33.0, which has a kernel for it; or BF16, --quantization fp8_per_block, a checkpoint with scales by block"),

    Rule("KV-01",  kv.no_backend,                                veto,             "no attention backend of vLLM {version} takes a cache in {dtype} on {arch} ({layer})", "platforms/cuda.py:84-182; platforms/rocm.py:531-567", "{hint}"),
    Rule("KV-02",  kv.dtype_unknown,                             veto,             "vLLM {version} has no KV cache dtype {dtype}", "config/cache.py:44-67"),
    Rule("KV-03",  kv.e5m2,                                      discourage(.85),  "fp8_e5m2 is as large as fp8_e4m3, with one mantissa bit less; FlashAttention never takes it", "v1/attention/backends/fa_utils.py:293", "--kv-cache-dtype fp8"),
    Rule("KV-04",  kv.e5m2_with_fp8_weights,                     veto,             "fp8_e5m2 is refused with {method} weights", "model_executor/layers/attention/attention.py:205-219; 0.24 :166-183", "--kv-cache-dtype fp8"),
    Rule("KV-05",  kv.no_scales,                                 discourage(.95),  "the checkpoint brings no scales for a cache in {dtype}: vLLM takes 1.0 and warns; warming up changes nothing", "quantization/kv_cache.py:131-173", "a checkpoint with calibrated KV scales, or fp8_per_token_head"),
    Rule("KV-06",  kv.fp8_on_ampere,                             discourage(.95),  "on {arch} only FlashInfer takes an fp8 cache", "v1/attention/backends/triton_attn.py:515; fa_utils.py:282-313"),
    Rule("KV-07",  kv.backend_moves,                             info,             "a cache in {dtype} moves attention from {before} to {after}", "platforms/cuda.py:84-182; platforms/rocm.py:531-567"),
    Rule("KV-08",  kv.sinks_on_ampere,                           veto,             "attention sinks leave only Triton on {arch}, and Triton refuses fp8 below sm89 when it starts", "v1/attention/backends/triton_attn.py:515", "--kv-cache-dtype auto"),
    Rule("KV-09",  kv.not_for_a_latent,                          veto,             "{dtype} is no format for MLA's latent cache", "v1/attention/backends/mla/*.py supported_kv_cache_dtypes", "--kv-cache-dtype fp8, or auto"),
    Rule("KV-10",  kv.quantized_in_long_retrieval,               discourage(.6),   "a cache in {dtype} for retrieval over {tokens} tokens may miss single facts", "advice: errors grow with the tokens searched; measure it", "--kv-cache-dtype auto"),
    Rule("KV-11",  kv.quantized_for_sensitive_work,              discourage(.9),   "a cache in {dtype} without calibrated scales for code or maths", "public measurements: MATH-500 fell by 4.2 points in one public report (vLLM PR 54705)", "--kv-cache-dtype auto"),
    Rule("KV-12",  kv.differs_from_model_dtype,                  veto,             "a cache in {asked} for a model in {model} is refused", "config/vllm.py:1492-1508", "--kv-cache-dtype auto"),
    Rule("KV-13",  kv.state_stays,                               info,             "--kv-cache-dtype {dtype} leaves the fixed state of this hybrid as it is", "config/cache.py mamba_cache_dtype"),
    Rule("KV-14",  kv.halves_a_long_cache,                       prefer(1.03),     "fp8 halves a cache of {tokens} tokens, and the device computes in it", "public measurements: an fp8 cache paid on long contexts"),
    Rule("KV-15",  kv.quantized_for_short_contexts,              discourage(.9),   "requests of {length} tokens gain little from an fp8 cache", "public measurements: an fp8 cache made things slower in four of six sources"),
    Rule("KV-16",  kv.four_bits,                                 discourage(.8),   "{dtype} keeps the cache in four bits or fewer", "advice: measure accuracy first"),
    Rule("KV-17",  kv.block_size_of_minimax_m3,                  veto,             "MiniMax-M3's sparse attention needs a block size of 128, not {asked}", "models/minimax_m3/common/sparse_attention.py:165-167", "--block-size 128"),
    Rule("KV-18",  kv.forced_backend_refuses,                    veto,             "{forced} does not take a cache in {dtype} here; these do: {takes}", "v1/attention/backends/*.py"),
    Rule("KV-19",  kv.deepseek_v4_is_fp8,                        info,             "DeepSeek V4 keeps its cache in fp8 whatever --kv-cache-dtype says", "models/deepseek_v4/attention.py:107-122"),
    Rule("KV-20",  kv.cache_kept,                                info,             "the cache stays in 16 bits, through {backend}: nothing is lost and no scales are needed", "platforms/cuda.py:84-182; platforms/rocm.py:531-567"),
    Rule("KV-21",  widths.unlike_widths_in_fp8,                  veto,             "keys of {k} and values of {v} have an attention kernel of their own, which reads no cache in {dtype} on {arch}", "models/mimo_v2.py:320-340; v1/attention/backends/flash_attn.py:1129-1143; triton_attn_diffkv.py:113; 0.24 :154", "--kv-cache-dtype auto"),
    Rule("KV-22",  widths.images_in_fp8_on_ampere,               veto,             "images that attend in both directions leave Triton on {arch}, and it refuses an fp8 cache below sm89", "v1/attention/backends/flash_attn.py:471-512; triton_attn.py:515", "--kv-cache-dtype {dtype}"),

    Rule("ACC-01", quality.four_bits_online_for_sensitive_work,  discourage(.4),   "{flag} rounds to four bits while loading, with no calibration, for {work} work", "advice", "BF16, an FP8 checkpoint, or a calibrated four-bit one that was measured"),
    Rule("ACC-02", quality.four_bits_online,                     discourage(.65),  "{flag} rounds to four bits while loading, with no calibration: measure accuracy before use", "advice"),
    Rule("ACC-03", quality.four_bit_checkpoint_for_sensitive_work, discourage(.25), "{checkpoint} is a four-bit copy of {base}", "advice: code and maths show the loss first"),
    Rule("ACC-04", quality.full_precision_for_sensitive_work,    prefer(1.05),     "{scheme} takes no risk with accuracy", "advice"),
    Rule("ACC-05", quality.eight_bits_online_for_sensitive_work, discourage(.93),  "{flag} has one scale for a whole matrix, for code or maths", "advice", "fp8_per_channel, or a published FP8 checkpoint"),
    Rule("ACC-06", quality.sibling_is_ready,                     discourage(.97),  "{sibling} exists in that precision; {flag} makes another one while loading", "advice: a published checkpoint was made and measured once"),
    Rule("ACC-07", quality.coarse_scale_online,                  discourage(.98),  "{flag} has one scale a matrix; fp8_per_channel and fp8_per_block are finer for the same bytes", "config/quantization.py:195-223"),
    Rule("ACC-08", quality.made_by_others,                       discourage(.95),  "quantized by {maker}, not by the publisher of {base}", "advice: look for their evaluation"),
    Rule("ACC-09", quality.rare_experts_uncalibrated,            info,             "{used} of {experts} experts run a token: a calibration set may not have reached the rare ones", "advice"),
    Rule("ACC-10", quality.eight_bit_copy_for_sensitive_work,    discourage(.5),   "{scheme} rounds weights that were trained in BF16: for code or maths, measure it first", "advice", "BF16 where it fits"),
    Rule("ACC-11", quality.four_bit_copy,                        discourage(.75),  "{checkpoint} is a four-bit copy of {base}: more of it is lost than in eight bits", "advice: measure accuracy before use"),
    Rule("ACC-12", quality.small_model_online,                   discourage(.85),  "{flag} on {params} parameters: little memory to save, and a small model loses more by rounding", "advice", "BF16"),

    Rule("BAT-01", serving.more_sequences_than_state_blocks,     veto,             "{seqs} sequences, {blocks} state blocks: vLLM refuses to capture graphs", "config/compilation.py:1511-1533", "--max-num-seqs {blocks}"),
    Rule("BAT-02", serving.fewer_tokens_than_sequences,          veto,             "max_num_batched_tokens {tokens} is below max_num_seqs {seqs}", "config/scheduler.py:331"),
    Rule("BAT-03", serving.requests_wait,                        discourage(.97),  "{seqs} sequences run at once, {wanted} are in flight: the others wait", "config/scheduler.py"),
    Rule("BAT-04", serving.long_prefill_steps,                   discourage(.97),  "steps of {tokens} tokens delay everybody's next token while a prompt is read", "advice: chunked prefill shares the token budget"),
    Rule("BAT-05", serving.prompt_in_many_steps,                 info,             "a prompt takes {steps} steps of {tokens} tokens", "config/scheduler.py"),

    Rule("ENV-01", serving.aiter_off,                            discourage(.7),   "AITER is off by default on {arch}", "_aiter_ops.py:203-223; public measurements: unset it was 1.7 to 3.7 times slower (vLLM issue 56945)", "VLLM_ROCM_USE_AITER=1"),
    Rule("ENV-02", serving.aiter_where_it_is_not_built,          discourage(.8),   "AITER has no kernels for {arch}", "_aiter_ops.py:203-238; platforms/rocm.py:1426", "leave VLLM_ROCM_USE_AITER unset"),
    Rule("ENV-03", serving.variable_unknown,                     discourage(.95),  "{names}: unknown to vLLM {version}, which warns and ignores them", "envs.py", "leave them out"),

    Rule("LNG-01", serving.longer_than_the_model,                veto,             "{asked} tokens asked, the model has {most} positions", "config/model.py _get_and_verify_max_len"),
    Rule("LNG-02", serving.shorter_than_the_requests,            veto,             "requests of {needed} tokens would be refused at {asked}", "v1/engine/processor"),
    Rule("LNG-03", serving.latent_in_long_context,               info,             "{tokens} tokens of latent cache on each TP rank: decode context parallelism would split them", "config/parallel.py decode_context_parallel_size"),

    Rule("HW-01",  serving.figures_unverified,                   info,             "{gpu}: {fields} come from weak sources, so the speed estimate does too", "catalog"),
    Rule("HW-02",  serving.memory_is_shared,                     info,             "{gpu} shares its memory with the CPU: what the system uses is missing here", "catalog"),
    Rule("HW-03",  serving.devices_differ,                       info,             "unlike devices ({names}): {least} limits all of them", "advice"),
    Rule("HW-04",  serving.on_cpu,                               info,             "no GPU: {arch} serves small models, slowly", "platforms/cpu.py"),
    Rule("HW-05",  serving.compiled_on_cpu,                      info,             "compiled on the CPU: a start takes minutes and needs a C++ compiler (g++) there, for about 1.25 times the tokens a second", "platforms/cpu.py:373-391; torch/_inductor/cpp_builder.py; measured: SmolLM2-135M, vLLM 0.32.0, 2 cores, median of 13 rounds in turns (0.88 to 1.47; start 3 to 5.5 times as long)", "--enforce-eager starts at once, without a compiler, and is slower"),

    Rule("PRV-01", quality.config_not_verbatim,                  info,             "the model's config is {provenance}, not the published file", "catalog", "pass a local folder to be sure"),
    Rule("PRV-02", quality.weight_bytes_derived,                 info,             "weight bytes follow from shapes, not from the files' index", "catalog"),

    Rule("VER-01", serving.flag_missing,                         veto,             "{flags}: not in vLLM {version}", "engine/arg_utils.py"),
    Rule("VER-02", serving.moe_backend_unknown,                  veto,             "--moe-backend {forced} is none of vLLM {version}", "config/kernel.py"),
    Rule("VER-03", serving.attention_backend_unknown,            veto,             "--attention-backend {forced} is none of vLLM {version}", "v1/attention/backends/registry.py"),
    Rule("VER-04", serving.judged_by_a_neighbour,                info,             "kernels are judged by the tables of vLLM {tables}, the nearest to {version} that was read", "advice"),
    Rule("VER-05", serving.choice_rests_on_the_unread,           info,             "which kernel vLLM {version} takes for {part} in {scheme} also rests on what its source does not tell: {note}", "model_executor/kernels/linear/; fused_moe/oracle/"),
)
# fmt: on

"""`advisor estimate`: what it takes, and which function answers."""

from __future__ import annotations

import typer

from vllm_advisor.cli import options as o


estimate_app = o.single()


@estimate_app.command(
    epilog=o.examples(
        "advisor estimate Qwen/Qwen3-8B --gpu L4                        # every default of vLLM's",
        "advisor estimate openai/gpt-oss-120b --gpu 2xH100 --tp 2 --max-model-len 128K --max-num-seqs 64",
        "advisor estimate Qwen/Qwen3-32B --gpu H100 --vllm 0.11.0 --enforce-eager --json",
        "advisor estimate Qwen/Qwen3-32B --gpu H100 --given-kv-gib 4.45 # what a printed KV cache holds",
        "advisor estimate Qwen/Qwen3-32B --gpu H100 --input-tokens 2000 --output-tokens 300 --concurrency 32",
        "advisor estimate --batch rows.jsonl --models configs > answers.jsonl",
    )
)
def estimate(
    model: o.OptionalModel = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.RunVllm = o.DEFAULT_VLLM,
    tp: o.RunTensorParallel = 1,
    pp: o.RunPipelineParallel = 1,
    dp: o.RunDataParallel = 1,
    ep: o.RunExpertParallel = False,
    dcp: o.RunContextParallel = 1,
    quantization: o.RunQuantization = None,
    kv_cache_dtype: o.RunKvCacheDtype = None,
    max_model_len: o.RunLength = None,
    utilization: o.Utilization = None,
    max_num_seqs: o.RunSequences = None,
    batched_tokens: o.RunBatchedTokens = None,
    enforce_eager: o.Eager = False,
    block_size: o.RunBlockSize = None,
    given_kv_gib: o.GivenKvGib = None,
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    request_rate: o.RequestRate = None,
    batch: o.BatchFile = None,
    models: o.ModelsFolder = None,
    given_kv: o.GivenKv = False,
    json: o.Json = False,
    offline: o.Offline = False,
    revision: o.Revision = None,
) -> None:
    """Say what one configuration of MODEL takes, whether it starts, and what would make it fit."""
    from vllm_advisor.cli import commands
    from vllm_advisor.estimate import Configuration

    given = Configuration(
        tp, pp, dp, dcp, ep, quantization, kv_cache_dtype, None, utilization, max_num_seqs, batched_tokens,
        enforce_eager, block_size,
    )  # fmt: skip
    load = commands.Lengths(input_tokens, output_tokens, concurrency, request_rate)
    asked = commands.Given(model, gpu, node, vllm, given, max_model_len, given_kv_gib, load, offline, revision)
    rows = commands.Batch(batch, models, given_kv)
    if commands.is_batch(asked, rows, json=json, vllm=o.DEFAULT_VLLM):
        commands.estimate_batch(rows)
        return
    raise typer.Exit(commands.estimate(asked, json=json))

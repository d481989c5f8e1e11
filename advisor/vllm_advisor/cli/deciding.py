"""`advisor recommend` and `advisor launch`: what they take, and which function answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_advisor.cli import options as o


recommend_app = o.single()
launch_app = o.single()


@recommend_app.command(
    epilog=o.examples(
        "advisor recommend openai/gpt-oss-120b                          # on the GPU machine itself",
        "advisor recommend openai/gpt-oss-120b --gpu 8xH100             # on a machine by name",
        "advisor recommend MiniMaxAI/MiniMax-M3 --gpu 8xH200 --context 131072 --concurrency 64",
        "advisor recommend Qwen/Qwen3-30B-A3B --node box.json --workload code --objective latency",
        "advisor recommend Qwen/Qwen3-8B --gpu L40S --format compose > compose.yaml",
        "advisor recommend Qwen/Qwen3-8B --gpu L40S --why-not           # what was rejected, and why",
    )
)
def recommend(
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    request_rate: o.RequestRate = None,
    shared_prefix: o.SharedPrefix = None,
    objective: o.ObjectiveName = None,
    ttft_ms: o.Ttft = None,
    tpot_ms: o.Tpot = None,
    sensitivity: o.SensitivityName = None,
    quantization: o.Quantization = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    tp: o.TensorParallel = None,
    pp: o.PipelineParallel = None,
    dp: o.DataParallel = None,
    ep: o.ExpertParallel = None,
    utilization: o.Utilization = None,
    max_num_seqs: o.MaxNumSeqs = None,
    batched_tokens: o.MaxBatchedTokens = None,
    enforce_eager: o.Eager = False,
    this_checkpoint: o.ThisCheckpoint = False,
    all_gpus: o.AllGpus = False,
    allow_plugin: o.AllowPlugin = False,
    fmt: Annotated[
        str | None,
        typer.Option("--format", help="Only the deployment: command, json, env, python, yaml, compose, k8s, systemd."),
    ] = None,
    annotate: Annotated[bool, typer.Option("--annotate", help="A comment line for each flag.")] = False,
    top: Annotated[int, typer.Option(min=1, max=50, help="How many plans to show.")] = 5,
    why_not: Annotated[bool, typer.Option("--why-not", help="List the rejected plans with every reason.")] = False,
    recipes: o.Recipes = None,
    price: o.Price = None,
    prices: o.Prices = None,
    json: o.Json = False,
    offline: o.Offline = False,
    revision: o.Revision = None,
) -> None:
    """Rank the ways to serve MODEL on a machine, and print the vllm serve command of the best."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.cli import commands

    load = question.Load(
        workload, input_tokens, output_tokens, concurrency, context, request_rate, shared_prefix, objective, ttft_ms,
        tpot_ms, sensitivity,
    )  # fmt: skip
    fixed = Restrictions(
        quantization, kv_cache_dtype, tp, pp, dp, ep, utilization, max_num_seqs, batched_tokens,
        enforce_eager or None, not this_checkpoint, all_gpus, allow_plugin=allow_plugin,
    )  # fmt: skip
    asked = question.Question(model, gpu, node, vllm, load, fixed, offline, revision)
    raise typer.Exit(
        commands.recommend(asked, commands.Shape(fmt, top, why_not, annotate, json, recipes, price, prices))
    )


@launch_app.command(
    epilog=o.examples(
        "advisor launch Qwen/Qwen3-8B                                   # the best plan, on this machine",
        "advisor launch Qwen/Qwen3-8B --plan 2 --port 8080              # the second of `advisor recommend`",
        "advisor launch Qwen/Qwen3-32B --kv-cache-dtype fp8 --tp 2      # the best of those",
        "advisor launch ./my-model --gpu cpu --vllm 0.32.0 --vllm-python ~/vllm/bin/python",
    )
)
def launch(
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    request_rate: o.RequestRate = None,
    shared_prefix: o.SharedPrefix = None,
    objective: o.ObjectiveName = None,
    ttft_ms: o.Ttft = None,
    tpot_ms: o.Tpot = None,
    sensitivity: o.SensitivityName = None,
    quantization: o.Quantization = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    tp: o.TensorParallel = None,
    pp: o.PipelineParallel = None,
    dp: o.DataParallel = None,
    ep: o.ExpertParallel = None,
    utilization: o.Utilization = None,
    max_num_seqs: o.MaxNumSeqs = None,
    batched_tokens: o.MaxBatchedTokens = None,
    enforce_eager: o.Eager = False,
    this_checkpoint: o.ThisCheckpoint = False,
    all_gpus: o.AllGpus = False,
    allow_plugin: o.AllowPlugin = False,
    plan: Annotated[int, typer.Option(min=1, max=50, help="Which plan, as `advisor recommend` numbers them.")] = 1,
    vllm_python: Annotated[Path | None, typer.Option(help="The Python of an environment that has vLLM.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8000,
    run_folder: Annotated[Path | None, typer.Option(help="Where the log is kept.")] = None,
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until the server must answer.")] = 3600,
    offline: o.Offline = False,
    revision: o.Revision = None,
) -> None:
    """Start the best plan for MODEL on this machine, and stop it with Ctrl-C."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.cli import commands

    load = question.Load(
        workload, input_tokens, output_tokens, concurrency, context, request_rate, shared_prefix, objective, ttft_ms,
        tpot_ms, sensitivity,
    )  # fmt: skip
    fixed = Restrictions(
        quantization, kv_cache_dtype, tp, pp, dp, ep, utilization, max_num_seqs, batched_tokens,
        enforce_eager or None, not this_checkpoint, all_gpus, allow_plugin=allow_plugin,
    )  # fmt: skip
    asked = question.Question(model, gpu, node, vllm, load, fixed, offline, revision)
    raise typer.Exit(commands.launch(asked, commands.Where(vllm_python, port, run_folder, start_timeout), plan))

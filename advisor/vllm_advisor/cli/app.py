"""The `advisor` command: what each subcommand takes, and which function answers. No logic lives here.

Nothing heavy is imported at the top: `advisor --help` costs what typer costs.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.lazy import LazyGroup
from vllm_advisor.cli.options import examples


app = typer.Typer(
    name="advisor",
    cls=LazyGroup,
    help="What should run on these GPUs, and why: a vLLM deployment that fits, is fast, and says how sure it is.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help costs 80 ms more than plain text
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "advisor recommend openai/gpt-oss-120b --gpu 8xH100",
        "advisor probe",
        "advisor matrix MI300X",
    ),
)


@app.callback(invoke_without_command=True)
def advisor(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from vllm_advisor import __version__

        typer.echo(f"vllm-advisor {__version__}")
        raise typer.Exit


@app.command(
    epilog=examples(
        "advisor probe                                                  # what is in this machine",
        "advisor probe --save box.json                                  # carry it to a laptop",
        "advisor recommend Qwen/Qwen3-8B --node box.json                # and decide there",
    )
)
def probe(
    save: Annotated[Path | None, typer.Option(help="Write the machine to a file for --node.")] = None,
    node: o.NodeFile = None,
    json: o.Json = False,
) -> None:
    """Show what is in this machine: GPUs, memory, links, driver, host."""
    from vllm_advisor.cli import commands

    commands.probe(save, node, json=json)


@app.command(
    epilog=examples(
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


@app.command(
    epilog=examples(
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


@app.command(
    epilog=examples(
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


@app.command(
    epilog=examples("advisor matrix MI300X --vllm 0.24.0", "advisor matrix                  # for this machine")
)
def matrix(
    gpu: Annotated[str | None, typer.Argument(help="A GPU by name; none: the one in this machine.")] = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    allow_plugin: o.AllowPlugin = False,
    json: o.Json = False,
) -> None:
    """Print the decision matrix of a GPU, beside the six rows of the text this product began from."""
    from vllm_advisor.cli import commands

    commands.matrix(gpu, vllm, allow_plugin=allow_plugin, json=json)


@app.command()
def gpus(json: o.Json = False) -> None:
    """List the GPUs of the catalog with memory, bandwidth and formats."""
    from vllm_advisor.cli import commands

    commands.gpus(json=json)


@app.command(epilog=examples("advisor models qwen3"))
def models(
    name: Annotated[str, typer.Argument(help="Part of a name.")] = "",
    json: o.Json = False,
) -> None:
    """List the models of the catalog, which need no network."""
    from vllm_advisor.cli import commands

    commands.models(name, json=json)


def main() -> None:
    """The console script: expected failures are one line and an exit code."""
    gc.disable()  # a short process that frees nothing; a collection costs milliseconds of a 150 ms answer
    from vllm_advisor.errors import AdvisorError

    try:
        app()
    except AdvisorError as error:
        from vllm_advisor.cli import diagnostics

        sys.exit(diagnostics.fail(error))

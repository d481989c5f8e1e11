"""`advisor compare`: what is asked, and the answer as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vllm_advisor.cli import options as o


if TYPE_CHECKING:
    from vllm_advisor.compare import Comparison
    from vllm_advisor.question import Question

app = o.single()

Wanted = Annotated[
    str | None,
    typer.Option("--quantizations", help="Formats: bf16,fp8,fp8+fp8 (KV behind the +),mxfp4,nvfp4,int4,fp8_per_block."),
]
Every = Annotated[bool, typer.Option("--all", help="Every format that has a checkpoint or a conversion here.")]


class Choice(NamedTuple):
    """Which formats: those named, or the usual ones, or all."""

    named: str | None
    every: bool


@app.command(
    epilog=o.examples(
        "advisor compare Qwen/Qwen3-8B --gpu H100                       # BF16, FP8, FP8 with FP8 KV, MXFP4",
        "advisor compare MiniMaxAI/MiniMax-M3 --gpu 8xB200 --all        # NVFP4, MXFP8, INT8 … as well",
        "advisor compare MiniMaxAI/MiniMax-M3 --gpu 8xH100 --vllm 0.24.0 --context 32768",
        "advisor compare Qwen/Qwen3-8B --gpu L40S --quantizations bf16,fp8+fp8,int4 --json",
    )
)
def compare(
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    quantizations: Wanted = None,
    every: Every = False,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    request_rate: o.RequestRate = None,
    shared_prefix: o.SharedPrefix = None,
    objective: o.ObjectiveName = None,
    tp: o.TensorParallel = None,
    pp: o.PipelineParallel = None,
    dp: o.DataParallel = None,
    ep: o.ExpertParallel = None,
    utilization: o.Utilization = None,
    max_num_seqs: o.MaxNumSeqs = None,
    batched_tokens: o.MaxBatchedTokens = None,
    enforce_eager: o.Eager = False,
    this_checkpoint: o.ThisCheckpoint = False,
    allow_plugin: o.AllowPlugin = False,
    json: o.Json = False,
    offline: o.Offline = False,
    revision: o.Revision = None,
) -> None:
    """Set BF16, FP8, FP8 with an FP8 cache and MXFP4 of MODEL side by side: memory, load, speed, kernels, accuracy."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions

    load = question.Load(
        workload, input_tokens, output_tokens, concurrency, context, request_rate, shared_prefix, objective
    )
    fixed = Restrictions(
        None, None, tp, pp, dp, ep, utilization, max_num_seqs, batched_tokens, enforce_eager or None,
        not this_checkpoint, allow_plugin=allow_plugin,
    )  # fmt: skip
    asked = question.Question(model, gpu, node, vllm, load, fixed, offline, revision)
    raise typer.Exit(show(answer(asked, Choice(quantizations, every)), json=json))


def answer(asked: Question, choice: Choice) -> Comparison:
    """Read everything that is asked about, and compare."""
    from vllm_advisor import question
    from vllm_advisor.cli.diagnostics import note
    from vllm_advisor.compare import compare as compared
    from vllm_advisor.compare import formats, parse
    from vllm_advisor.errors import UsageError

    if choice.named is not None and choice.every:
        raise UsageError("--quantizations and --all both say what to compare", "give one of them")
    named = parse(choice.named) if choice.named is not None else ()
    facts, siblings = question.read(asked, note)
    checkpoints = (facts.model, *(siblings if asked.restrictions.siblings else ()))
    ours = asked.restrictions.allow_plugin
    wanted = named or formats(facts, checkpoints, every=choice.every, ours=ours)
    return compared(facts, checkpoints, wanted, asked.restrictions)


def show(found: Comparison, *, json: bool) -> int:
    """Print it. 0: at least one format fits."""
    from vllm_advisor.cli import output
    from vllm_advisor.cli.diagnostics import ExitCode

    if json:
        from vllm_advisor.cli.compare_document import document

        output.write_json(document(found))
    else:
        from vllm_advisor.cli.compare_view import lines

        output.write(lines(found))
    return ExitCode.OK if any(row.fits for row in found.rows) else ExitCode.NO

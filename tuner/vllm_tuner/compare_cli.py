"""`tuner compare`: what is asked, servers one after the other, and each column as it is known."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vllm_advisor.cli import compare as estimated
from vllm_advisor.cli import options as o


if TYPE_CHECKING:
    from vllm_advisor.compare import Comparison
    from vllm_advisor.question import Question
    from vllm_tuner.compare import Column
    from vllm_tuner.compare_show import Form
    from vllm_tuner.serving import Bench
    from vllm_tuner.trial import Study

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_USUAL_BUDGET_S = 3600.0


class Where(NamedTuple):
    """Whose vLLM, how much work, where logs and results go, how long all of it and a start may take."""

    vllm_python: Path | None
    effort: str
    budget: str | None
    folder: Path | None
    store: str | None
    allowance_s: float


@app.command(
    epilog=o.examples(
        "tuner compare Qwen/Qwen3-8B                                    # BF16, FP8, FP8 with FP8 KV, MXFP4",
        "tuner compare Qwen/Qwen3-8B --quantizations bf16,fp8+fp8 --concurrency 64 --context 8192",
        "tuner compare ./my-model --gpu cpu --vllm-python ~/vllm/bin/python --json-lines",
    )
)
def compare(
    model: o.Model,
    quantizations: estimated.Wanted = None,
    every: estimated.Every = False,
    effort: Annotated[str, typer.Option(help="How long each is loaded: quick, normal or thorough.")] = "quick",
    budget: Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h; none: an hour.")] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(envvar="ADVISOR_VLLM_PYTHON", help="The Python of an environment that has vLLM.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="cpu: the processor, whatever GPUs there are.")] = None,
    vllm: Annotated[str | None, typer.Option("--vllm", help="The vLLM version; none: the installed one.")] = None,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    tp: o.TensorParallel = None,
    enforce_eager: o.Eager = False,
    this_checkpoint: o.ThisCheckpoint = False,
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until a server must answer.")] = 1800,
    folder: Annotated[Path | None, typer.Option(help="Where the servers' logs are kept.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Where results are kept: a file or an address of PostgreSQL.")
    ] = None,
    json: o.Json = False,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="Events and columns on stdout as JSON.")] = False,
    offline: o.Offline = False,
) -> None:
    """Start MODEL in each format on this machine, and set the engine's own figures beside the estimates."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.errors import UsageError
    from vllm_tuner.compare_show import Form

    if json and json_lines:
        raise UsageError("--json is one document and --json-lines is many", "give one of them")
    where = Where(python(vllm_python), effort, budget, folder, store, start_timeout)
    load = question.Load(workload, input_tokens, output_tokens, concurrency, context)
    fixed = Restrictions(
        tensor_parallel_size=tp,
        enforce_eager=enforce_eager or None,
        siblings=not this_checkpoint,
        allow_plugin=has_plugin(where.vllm_python),
    )
    asked = question.Question(model, _here(gpu), None, vllm or _installed(where.vllm_python), load, fixed, offline)
    form = Form.JSON if json else Form.LINES if json_lines else Form.TEXT
    raise typer.Exit(run(asked, estimated.Choice(quantizations, every), where, form))


def run(asked: Question, choice: estimated.Choice, where: Where, form: Form) -> int:
    """Measure and show. 0: at least one column was measured; what is known is shown after Ctrl-C too."""
    from vllm_advisor.cli.diagnostics import ExitCode, note
    from vllm_advisor.launch import borrowed_signals
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner import compare_show
    from vllm_tuner.budget import Budget
    from vllm_tuner.compare import Run, columns
    from vllm_tuner.effort import seconds
    from vllm_tuner.lease import leased

    found = estimated.answer(asked, choice)
    budget = Budget(seconds(where.budget) if where.budget else _USUAL_BUDGET_S)
    bench, study, show = _bench(found, where), _study(asked, found, where), compare_show.Shown(found, form)
    show.opened(study, budget)
    with borrowed_signals(), ProfileStore.open(where.store) as store, leased(store, study.node, budget):
        done: list[Column] = []
        try:
            for column in columns(found, Run(bench, store, study, budget, show.event)):
                done.append(column)
                show.column(column)
        except BaseException:
            note(f"stopped; {len(done)} of {len(found.rows)} columns are known")
            raise
        finally:
            show.result(done)
    return ExitCode.OK if any(column.measured for column in done) else ExitCode.NO


def _bench(found: Comparison, where: Where) -> Bench:
    import platformdirs

    from vllm_tuner import workloads
    from vllm_tuner.compare import space
    from vllm_tuner.effort import effort
    from vllm_tuner.serving import Bench

    facts = found.facts
    longest = min((row.plan.max_model_len for row in found.rows if row.plan and row.fits), default=found.length)
    source = workloads.Synthetic(facts.workload, workloads.Shape(facts.model.vocab_size, longest))
    folder = where.folder or platformdirs.user_state_path("vllm-advisor") / "compare"
    return Bench(space(found), lambda _: source, effort(where.effort), folder, where.vllm_python, where.allowance_s)


def _study(asked: Question, found: Comparison, where: Where) -> Study:
    from vllm_advisor import fingerprint
    from vllm_tuner.compare import KIND
    from vllm_tuner.trial import Study, study_name

    facts = found.facts
    known = fingerprint.of(facts, fingerprint.installed(where.vllm_python), fingerprint.checkpoint(asked.model))
    name = study_name(facts.model.name, known, facts.workload, KIND).partition(" ")[2]
    return Study(f"{KIND} {name}", socket.gethostname(), known, facts.workload)


def python(given: Path | None) -> Path | None:
    """The Python that vLLM runs in: the given one, else the one beside the `vllm` on the PATH (None: not found)."""
    from vllm_advisor.errors import UsageError

    found = None if given else shutil.which("vllm")
    if given or found is None:
        if given is None:
            hint = "--vllm-python ~/vllm/bin/python; `advisor compare` gives the estimates without one"
            raise UsageError("there is no vllm on the PATH, and measuring needs a real one", hint)
        return given
    beside = Path(found).parent / "python"
    return beside if beside.exists() else None


def has_plugin(vllm_python: Path | None) -> bool:
    """Whether our plugin stands in vLLM's environment: its MXFP4 is a column then."""
    from vllm_advisor import fingerprint
    from vllm_advisor.hardware import Unknown

    found = fingerprint.installed(vllm_python).plugin if vllm_python else Unknown("not looked for")
    return not isinstance(found, Unknown) and found != "none"


def _here(gpu: str | None) -> str | None:
    from vllm_advisor.errors import UsageError

    if gpu is not None and gpu.strip().lower() != "cpu":
        raise UsageError(f"--gpu {gpu}: this measures the machine here", "leave it out, or --gpu cpu")
    return gpu


def _installed(vllm_python: Path | None) -> str:
    from vllm_advisor import fingerprint
    from vllm_advisor.cli.diagnostics import note
    from vllm_advisor.hardware import Unknown

    found = fingerprint.installed(vllm_python).vllm if vllm_python else Unknown("not looked for")
    if isinstance(found, Unknown):
        note(f"which vLLM is installed could not be read: taken as {o.DEFAULT_VLLM} (--vllm says otherwise)")
        return o.DEFAULT_VLLM
    return found.partition("+")[0]

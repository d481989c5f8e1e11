"""The formats of `advisor compare` measured on real servers, one child after the other, beside their estimates.

Memory is what the engine's own log says, speed what a short load saw: nothing is read in this process, where an engine
that runs in another one never shows. A start that fails is a column too, with the diagnosis of its log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import fingerprint
from vllm_advisor.doctor.comparison import limiting
from vllm_advisor.errors import AdvisorError
from vllm_advisor.facts import Ranked
from vllm_advisor.launch.child import LOG_NAME
from vllm_advisor.profile import Event, Trial, TrialState
from vllm_advisor.units import GIB, Interval
from vllm_advisor.vllm import logs
from vllm_tuner import serving
from vllm_tuner.spaces import Space
from vllm_tuner.trial import BudgetSpent, Candidate, Infeasible


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_advisor.compare import Comparison, Row
    from vllm_advisor.profile import Fingerprint, Measurement
    from vllm_advisor.vllm.logs_facts import Facts as Logged
    from vllm_tuner.budget import Budget
    from vllm_tuner.serving import Bench
    from vllm_tuner.trial import Study, Tell, TrialStore

KIND = "compare"
_SPEEDS = (("output_tok_s", "output", "tok/s"), ("tpot_ms", "time a token", "ms"), ("ttft_ms", "first token", "ms"))


class Figure(NamedTuple):
    """One figure as measured and as estimated, with the estimate's interval; None: not printed, or not predicted."""

    name: str
    unit: str
    measured: float | None
    estimated: float | None
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        """The estimate as a multiple of what was measured."""
        if not self.measured or self.estimated is None:
            return None
        return self.estimated / self.measured


class Column(NamedTuple):
    """One format. `state` None: not started, `reason` says why. `kernels` are (part, name) as the log names them."""

    row: Row
    state: TrialState | None = None
    reason: str = ""
    figures: tuple[Figure, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether a server ran and answered."""
        return self.state is TrialState.COMPLETE

    def figure(self, name: str) -> Figure | None:
        """One of them by its name."""
        return next((f for f in self.figures if f.name == name), None)


def space(found: Comparison) -> Space:
    """The plans of the rows that fit, numbered by their place: all that a server is started from."""
    plans = [(number, _ranked(row)) for number, row in enumerate(found.rows, 1) if row.fits]
    return Space(found.facts, tuple((number, ranked) for number, ranked in plans if ranked), ())


def _ranked(row: Row) -> Ranked | None:
    if row.plan is None or row.model is None or row.budget is None or row.estimate is None or row.command is None:
        return None
    return Ranked(row.plan, row.model, row.budget, row.estimate, (), row.command, 0.0)


def columns(found: Comparison, run: Run) -> Iterator[Column]:
    """Each row measured as it is asked for, in its order; rows that do not fit are told and not tried.

    A signal passes through, its trial ABORTED behind it.
    """
    serving.sweep(run.bench.folder)
    run.store.recover_stale(run.study.node)
    for row in found.rows:
        if row.fits:
            yield run.column(row)
        else:
            yield Column(row, reason="; ".join(f"{f.rule}: {f.message}" for f in row.reasons) or row.verdict)


class Run(NamedTuple):
    """What all columns have in common: where they are measured, kept and told, and how long all may take."""

    bench: Bench
    store: TrialStore
    study: Study
    budget: Budget
    tell: Tell

    def column(self, row: Row) -> Column:
        """One server from its start to its end, kept as a trial."""
        if not self.budget.allows():
            return Column(row, TrialState.ABORTED, "the time budget was spent")
        number = self._added(row)
        name, begun = f"{KIND}-{number}", self.budget.now()
        try:
            self.store.start(number)
            self._say("column", f"{row.format.label}: started", number)
            state, reason, measurement = self._measured(row, name)
        except BaseException as stopped:
            self.store.finish(number, TrialState.ABORTED, reason=f"stopped: {str(stopped) or type(stopped).__name__}")
            raise
        seconds = self.budget.now() - begun
        self.budget.learn(seconds)
        logged = read(self.bench.folder / name / LOG_NAME)
        column = Column(row, state, reason, _figures(row, logged, measurement), _kernels(logged), seconds)
        self.store.finish(number, state, with_memory(measurement, column), reason=reason)
        self._say("column", f"{row.format.label}: {state}{reason and ': ' + reason}", number)
        return column

    def _added(self, row: Row) -> int:
        study, facts = self.study, self.bench.space.facts
        print_of = study.fingerprint if row.model is facts.model else _fingerprint(self.bench, row)
        settings = (("format", row.format.key),)
        return self.store.add_trial(Trial(study.name, KIND, row.plan, settings, study.node, fingerprint=print_of))

    def _measured(self, row: Row, name: str) -> tuple[TrialState, str, Measurement | None]:
        if row.plan is None:
            raise ValueError("a row that fits has a plan")
        try:
            found = serving.measure(self.bench, Candidate(row.plan), name, self.budget.end, None)
        except Infeasible as no:
            return TrialState.INFEASIBLE, no.reason, None
        except BudgetSpent:
            return TrialState.ABORTED, "the time budget was spent", None
        except AdvisorError as error:
            return TrialState.FAILED, error.message, None
        return TrialState.COMPLETE, "", found.measurement

    def _say(self, kind: str, message: str, number: int) -> None:
        details = (("trial", number), ("left_s", round(self.budget.left(), 1)))
        self.tell(Event(kind, message, self.study.node, details, time.time()))


def _fingerprint(bench: Bench, row: Row) -> Fingerprint:
    """That of a checkpoint which was not asked for."""
    facts, model = bench.space.facts, row.model or bench.space.facts.model
    return fingerprint.of(
        facts._replace(model=model), fingerprint.installed(bench.vllm_python), fingerprint.checkpoint(model.name)
    )


def read(log: Path) -> Logged | None:
    """What the engine printed at its last start; None where there is no log."""
    try:
        with log.open("rb") as stream:
            return logs.read(stream).starts[-1].facts
    except OSError:
        return None


def _figures(row: Row, logged: Logged | None, measurement: Measurement | None) -> tuple[Figure, ...]:
    return (*_memory(row, logged), *_speeds(row, measurement))


def _memory(row: Row, logged: Logged | None) -> Iterator[Figure]:
    budget, plan = row.budget, row.plan
    if budget is None or plan is None or logged is None:
        return
    pool, captured = limiting(logged), budget.captured or budget.graphs
    yield Figure("weights", "GiB", _most(logged, "weights_gib"), budget.weights / GIB)
    yield _spread("KV cache", "GiB", _least(logged) or logged.given_kv_gib, budget.kv_cache.scaled(1 / GIB))
    yield Figure("KV cache size", "tokens", float(pool.tokens) if pool else None, float(budget.kv_tokens))
    if pool is None or pool.length in (None, plan.max_model_len):
        yield Figure("full requests", "x", pool.concurrency if pool else None, budget.max_concurrency)
    graphs = _most(logged, "graphs_gib")
    if graphs is not None or captured.mid:  # a processor, and an eager server, have none
        yield _spread("CUDA graphs", "GiB", graphs, captured.scaled(1 / GIB))


def _most(logged: Logged, name: str) -> float | None:
    return max((v for rank in logged.ranks.values() if (v := getattr(rank, name)) is not None), default=None)


def _least(logged: Logged) -> float | None:
    return min((rank.kv_gib for rank in logged.ranks.values() if rank.kv_gib is not None), default=None)


def _speeds(row: Row, measurement: Measurement | None) -> Iterator[Figure]:
    for field, name, unit in _SPEEDS:
        taken = measurement.figure(field) if measurement else None
        predicted: Interval | None = getattr(row.estimate, field) if row.estimate else None
        if taken and predicted:
            yield _spread(name, unit, taken.mid, predicted)


def _spread(name: str, unit: str, measured: float | None, predicted: Interval) -> Figure:
    return Figure(name, unit, measured, predicted.mid, predicted.low, predicted.high)


def _kernels(logged: Logged | None) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((b.part, b.name) for b in logged.backends.values())) if logged else ()


_KEPT = {"weights": "weights_gib", "KV cache": "kv_gib", "KV cache size": "kv_tokens"}


def with_memory(measurement: Measurement | None, column: Column) -> Measurement | None:
    """The measurement with what the engine printed of its memory, as `weights_gib`, `kv_gib` and `kv_tokens`."""
    if measurement is None:
        return None
    more = tuple(
        (_KEPT[f.name], Interval(f.measured, f.measured, f.measured))
        for f in column.figures
        if f.name in _KEPT and f.measured is not None
    )
    return measurement._replace(figures=tuple(sorted((*measurement.figures, *more))))


def against(base: Column | None, column: Column, name: str) -> float | None:
    """A measured figure as a multiple of the base's, None where one of them is missing."""
    if base is None or column is base:
        return None
    ours, theirs = column.figure(name), base.figure(name)
    if not (ours and theirs and ours.measured and theirs.measured):
        return None
    return ours.measured / theirs.measured


def base(found: Comparison, done: Sequence[Column]) -> Column | None:
    """The column that ratios are to: the comparison's own base where it ran, else the first that did."""
    ran = [column for column in done if column.measured]
    return next((c for c in ran if found.base and c.row.format == found.base.format), ran[0] if ran else None)

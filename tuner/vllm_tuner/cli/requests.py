"""What `--requests` names: a file or a running server; the load to plan for, and requests like the recorded ones."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner import sources, traces, workloads


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.facts import Facts
    from vllm_advisor.question import Load
    from vllm_advisor.workload import Workload
    from vllm_tuner.load import Target
    from vllm_tuner.traces import Recorded
    from vllm_tuner.workloads import Shape, Source

_INTERVAL_S = 5.0  # a running server is read twice, this far apart, for the rate of now
_LENGTHS = (".jsonl", ".csv")
_ANY = workloads.Shape(1 << 15, 1 << 30)  # lengths alone are wanted


class Given(NamedTuple):
    """Where requests come from. `load`: lengths that were recorded; `texts`: they are real prompts."""

    label: str
    path: Path | None = None
    load: Recorded | workloads.Lengths | None = None
    texts: bool = False

    def planned(self, base: Workload, typed: Load) -> Workload:
        """The load to plan for: what was recorded, but whatever was typed stands."""
        if self.load is None:
            return base
        found = self.load.workload(base)
        return replace(found, **{field: getattr(base, field) for field, text in _fields(typed) if text is not None})

    def source(self, facts: Facts, shape: Shape) -> Callable[[Target], Source]:
        """Requests for a server; texts are counted by it, each once."""
        recorded, synthetic = self.load, workloads.Synthetic(facts.workload, shape)
        if isinstance(recorded, traces.Recorded):
            return lambda _: recorded.source(shape)
        path = self.path
        if path is None:
            return lambda _: synthetic
        counted: dict[str, int] = {}
        return lambda target: sources.read(path, shape, functools.partial(_count, counted, target), synthetic)


def _count(counted: dict[str, int], target: Target, text: str) -> int:
    from vllm_tuner.load import token_count

    if text not in counted:
        counted[text] = token_count(target, text)
    return counted[text]


def _fields(typed: Load) -> tuple[tuple[str, object], ...]:
    """The fields of a workload that a recorded load may replace, with what was typed for each."""
    return (
        ("input_tokens", typed.input_tokens),
        ("output_tokens", typed.output_tokens),
        ("concurrency", typed.concurrency),
        ("request_rate", typed.request_rate),
        ("shared_prefix_tokens", typed.shared_prefix),
    )


def given(text: str | None) -> Given:
    """Read what can be read before a server of ours runs. Raises BadInput, EngineError where no server answers."""
    if text is None:
        return Given("synthetic")
    if text.startswith(("http://", "https://")):
        return _live(text)
    path = Path(text).expanduser()
    load: Recorded | workloads.Lengths | None = sources.recorded(path)
    if load is None and path.suffix in _LENGTHS:
        found = sources.read(path, _ANY, len)
        load = found if isinstance(found, workloads.Lengths) else None
    return Given(path.name, path, load, texts=load is None and path.suffix == ".json")


def _live(url: str) -> Given:
    from vllm_advisor.vllm import live

    seen = live.read(url, interval_s=_INTERVAL_S)
    return Given(f"recorded at {live.shown(url)}", None, traces.of_live(seen))

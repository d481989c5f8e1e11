"""The slow part of every screen, for worker threads: what a state means, each layer read once while it stays the same.

Moving a slider only decides again; the machine is not probed and the model not read a second time.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from vllm_advisor import question
from vllm_advisor.errors import AdvisorError


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.facts import Facts
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.pareto import Point
    from vllm_advisor.question import Answer
    from vllm_advisor.tui.state import State

T = TypeVar("T")
TOP = 50  # plans that the table shows


class Superseded(AdvisorError):
    """Nobody waits for this answer any more."""


def _never() -> bool:
    return False


class Asker:
    """Answers for states. All methods may block and raise AdvisorError; one thread at a time is inside."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._lock = Lock()
        self.remarks: list[str] = []
        self.forgotten = 0  # how often something is to be read again: answers from before are old

    def forget(self, layer: str) -> None:
        """Read this layer again next time: `node`, `model`."""
        self._kept.pop(layer, None)
        self._kept.pop("points", None)
        self.forgotten += 1

    def node(self, state: State) -> Node:
        """The machine."""
        asked = state.question
        return self._layer("node", (asked.gpu, asked.node), lambda: question.node(asked.gpu, asked.node))

    def model(self, state: State) -> ModelSpec:
        """The checkpoint's facts: catalog, folder, cache, or the hub."""
        key = (state.model, state.revision, state.offline)
        return self._layer(
            "model",
            key,
            lambda: question.model(state.model, state.revision or None, offline=state.offline, tell=self._remark),
        )

    def answer(self, state: State, cancelled: Callable[[], bool] = _never) -> Answer:
        """Plans for the state. A wait in which somebody asked something else ends at once, with Superseded."""
        found = self._facts(state)
        with self._lock:
            if cancelled():
                raise Superseded("another question was asked meanwhile")
            return question.decide(found, question.siblings(found.model), state.question, TOP, self._remark)

    def points(self, state: State, cancelled: Callable[[], bool]) -> tuple[Point, ...]:
        """Plans at every load, for the Pareto chart; () once nobody waits for them any more.

        The load that was asked for is no part of it, so moving that one computes nothing again.
        """
        from vllm_advisor import pareto

        load = state.load._replace(concurrency=None, request_rate=None)
        key = (state._replace(load=load, plan=1, step="", fmt="", vllm_python="", port=1), "points")
        kept = self._kept.get("points")
        if kept is not None and kept[0] == key:
            known: tuple[Point, ...] = kept[1]
            return known
        found, points = self._facts(state), list[pareto.Point]()
        others = question.siblings(found.model)
        for level in pareto.LEVELS:
            if cancelled():
                return ()
            with self._lock:
                points += pareto.points(found, others, state.limits, (level,))
        self._kept["points"] = (key, tuple(points))
        return tuple(points)

    def quantizations(self, state: State) -> tuple[str, ...]:
        """What this version can convert the model's weights to on this machine while it loads them."""
        from vllm_advisor.vllm import backends, plugin

        surface, arch = question.surface(state.vllm), self.node(state).gpu.arch
        found = tuple(name for name, _ in backends.online_quantizations(surface, arch, self.model(state)))
        return (*found, plugin.NAME) if state.limits.allow_plugin else found

    def _facts(self, state: State) -> Facts:
        return question.facts(
            self.node(state), self.model(state), question.workload(state.load), question.surface(state.vllm)
        )

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def _layer(self, name: str, key: object, read: Callable[[], T]) -> T:
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or kept[0] != key:
                kept = (key, read())
                self._kept[name] = kept
            found: T = kept[1]
            return found

"""Warnings of a probe, and the thing that is asked: a handle with the number under which people know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.probe.nvml_driver import Driver


_NAMED_AT_MOST = 8  # an HGX board; more than that is a count


class Notes:
    """Warnings, collected by what they say, so that eight devices with one trouble make one line."""

    def __init__(self) -> None:
        self._labels: dict[str, list[str]] = {}

    def add(self, label: str, text: str) -> None:
        """`label` is the device's number as nvidia-smi counts, `1.0` for a slice, `0-1` a pair, "" for the machine."""
        self._labels.setdefault(text, []).append(label)

    def lines(self) -> tuple[str, ...]:
        """`GPU 0: …`, `GPUs 0, 1: …`, in the order in which they came up."""
        return tuple(_line(labels, text) for text, labels in self._labels.items())


class Subject(NamedTuple):
    """A device under question: every question gets its handle first, every note its label."""

    driver: Driver
    handle: Any
    label: str
    notes: Notes

    def ask(self, question: str, *arguments: Any) -> Any:
        """The driver's answer, or Refused. Raises GpuLost."""
        return self.driver.ask(question, self.handle, *arguments)

    def first(self, *questions: str) -> Any:
        """The answer to the first question that this driver knows."""
        return self.driver.first(*questions, handle=self.handle)

    def note(self, text: str) -> None:
        """A warning about this device."""
        self.notes.add(self.label, text)


def _line(labels: list[str], text: str) -> str:
    if labels == [""]:
        return text
    if len(labels) > _NAMED_AT_MOST:
        return f"GPUs {labels[0]} … {labels[-1]} ({len(labels)} in all): {text}"
    return f"GPU{'s' if len(labels) > 1 or '-' in labels[0] else ''} {', '.join(labels)}: {text}"

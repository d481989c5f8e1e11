"""What can go wrong, as one tree; every leaf is one cause, one message, one hint and one exit code.

    AdvisorError
    ├── UsageError              2   the command line asks for something that cannot be
    ├── BadInput                2   a file or a config that cannot be read as what it should be
    │   ├── UnknownModel        2
    │   ├── UnknownGpu          2
    │   ├── UnknownVllm         2
    │   └── UnsupportedModel    2   vLLM has no way to serve it as a language model
    ├── NoFeasiblePlan          1   the answer is no
    ├── ProbeError              3   the machine could not be read
    ├── StoreError              4   the profile database
    └── EngineError             5   vLLM itself: did not start, died, answered wrong

A message says what, with the numbers; a hint is the next thing to type.
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Any expected failure: printed as one line and a hint, never as a traceback.

    What it quotes may come from a stranger's file: it breaks no line and steers no terminal.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = one_line(message), one_line(hint)
        super().__init__(self.message)


def one_line(text: str) -> str:
    """A stranger's text without what ends a line or steers a terminal: a space in place of each such character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


class UsageError(AdvisorError):
    """The command line asks for something that cannot be."""


class BadInput(AdvisorError):
    """A file, a config or a value that is not what it should be."""


class UnknownModel(BadInput):
    """No catalog entry, local folder, cache entry or hub repository of that name."""


class UnknownGpu(BadInput):
    """No catalog entry of that name, or hardware that this product does not support."""


class UnknownVllm(BadInput):
    """A vLLM version that we have no surface of."""


class UnsupportedModel(BadInput):
    """An architecture that cannot be served as a language model, with the reason."""


class NoFeasiblePlan(AdvisorError):
    """Nothing fits; an answer, not a failure."""

    exit_code = 1


class ProbeError(AdvisorError):
    """The machine's own hardware could not be read."""

    exit_code = 3


class StoreError(AdvisorError):
    """The profile database could not be read or written."""

    exit_code = 4


class EngineError(AdvisorError):
    """A vLLM server did not start, died, or answered wrongly."""

    exit_code = 5

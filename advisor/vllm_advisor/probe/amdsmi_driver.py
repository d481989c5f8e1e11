"""The vendor's Python package behind one choke point: what it answers, or in plain words why it does not.

Nothing that it or its C library prints reaches the user: without ROCm the package prints on import, and the library
prints on stderr for devices that it cannot read.
"""

from __future__ import annotations

import ctypes
import io
import os
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from collections.abc import Iterator


# by the name of the status, as amdsmi_status_t has it without its prefix (amdsmi_exception.py, set_err_info)
_STATUS = {
    "INVAL": "the AMD library refused the question",
    "NOT_SUPPORTED": "this device does not offer it",
    "NOT_YET_IMPLEMENTED": "the AMD library does not offer it yet",
    "FAIL_LOAD_MODULE": "the AMD library could not load a part of itself",
    "FAIL_LOAD_SYMBOL": "the AMD library could not load a part of itself",
    "DRM_ERROR": "libdrm reported an error",
    "API_FAILED": "a call of the AMD driver failed",
    "TIMEOUT": "the AMD driver did not answer in time",
    "RETRY": "the device is busy, ask again",
    "NO_PERM": "no permission (add the user to the groups render and video)",
    "INTERRUPT": "a signal interrupted the AMD driver",
    "IO": "the AMD driver reported an input/output error",
    "OUT_OF_RESOURCES": "the AMD driver is out of memory",
    "INIT_ERROR": "the AMD driver could not be started",
    "BUSY": "the device is busy",
    "NOT_FOUND": "the AMD driver does not find the device",
    "NOT_INIT": "the AMD driver is not started",
    "DRIVER_NOT_LOADED": "the AMD driver (amdgpu) is not loaded",
    "NO_DATA": "the AMD driver has no figure for it",
    "FILE_NOT_FOUND": "a file of the AMD driver is missing",
    "FILE_ERROR": "a file of the AMD driver cannot be read",
    "UNKNOWN_ERROR": "the AMD driver gave no reason",
}
_CLASSES = {
    "AmdSmiParameterException": "this release of the package amdsmi expects another kind of question",
    "AmdSmiKeyException": "this release of the package amdsmi gave an incomplete answer",
    "AmdSmiBdfFormatException": "the address of the device on the PCI bus has no known form",
    "AmdSmiException": "the package amdsmi gave no reason",
}
_PREFIXES = ("AMDSMI_STATUS_", "AMD_SMI_")
_STDOUT, _STDERR = 1, 2


class Driver:
    """The vendor's module; every question goes through `ask`."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer of the module's function of that name, or Unknown; never raises."""
        function = getattr(self._module, question, None)
        if function is None:
            return Unknown("this release of the package amdsmi cannot say")
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001  # the vendor's own, and KeyError or ValueError out of its parsing
            return Unknown(sentence(error))

    def memory(self, question: str, handle: Any, kind: str) -> Any:
        """The answer to a question about one kind of memory: VRAM, or GTT (the host's, as far as the device may)."""
        kinds = getattr(self._module, "AmdSmiMemoryType", None)
        if not hasattr(kinds, kind):
            return Unknown("this release of the package amdsmi cannot say")
        return self.ask(question, handle, getattr(kinds, kind))


def sentence(error: BaseException) -> str:
    """Why, in plain words, for every exception that the vendor's package can raise and any other."""
    info = getattr(error, "err_info", None)
    if isinstance(info, str):
        name, _, text = info.partition(" - ")
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        return _STATUS.get(name.strip(), f"the AMD library reported: {' '.join(text.split()).lower() or 'no reason'}")
    known = [_CLASSES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CLASSES]
    return known[0] if known else f"the package amdsmi failed ({type(error).__name__})"


@contextmanager
def silence() -> Iterator[None]:
    """Nothing is printed inside, neither by Python nor by a C library; the process's own outputs come back after."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), _closed(_STDOUT), _closed(_STDERR):
        yield


@contextmanager
def _closed(descriptor: int) -> Iterator[None]:
    _flush()
    try:
        saved = os.dup(descriptor)
    except OSError:  # the process has no such output
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        yield
    finally:
        _flush()
        os.dup2(saved, descriptor)
        os.close(saved)


def _flush() -> None:
    """What C libraries have printed and still hold back: it would come out when the process ends."""
    ctypes.CDLL(None).fflush(None)

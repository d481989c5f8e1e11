"""Questions to the NVIDIA driver that never raise for an answer that is not there: a value, or why there is none.

Every vendor error is put into words in one place (`sentence`). Only a GPU that fell off the bus is an exception here,
because then every further question about that device is in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from types import ModuleType


INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 2, 3, 6, 13, 15

# nvmlReturn_t of nvml.h (CUDA 13), as the classes of pynvml carry it
_SENTENCES = {
    1: "NVML is not initialized",
    INVALID_ARGUMENT: "the driver refused the argument",
    NOT_SUPPORTED: "this device does not offer it",
    4: "this user has no permission to read it",
    5: "NVML is already initialized",
    NOT_FOUND: "the driver knows no such thing",
    7: "the buffer is too small for the driver's answer",
    8: "the GPU's external power cables are not attached",
    9: "the NVIDIA kernel driver is not loaded",
    10: "the driver did not answer in time",
    11: "the kernel has an interrupt problem with this GPU",
    12: "the NVIDIA driver library (libnvidia-ml) is not installed or cannot be loaded",
    FUNCTION_NOT_FOUND: "this driver is too old to know the question",
    14: "the GPU's infoROM is corrupted",
    GPU_IS_LOST: "the GPU has fallen off the bus",
    16: "the GPU needs a reset before it can be used again",
    17: "the operating system blocked the request",
    18: "the driver library and the kernel driver have different versions (reload the driver, or reboot)",
    19: "the GPU is in use",
    20: "the driver has no memory left for the request",
    21: "the driver has no data for it",
    22: "ECC cannot be read through a virtual GPU",
    23: "the driver has no resources left for the request",
    24: "the clock frequency is not supported",
    25: "driver and Python package speak different versions of the request",
    26: "the driver no longer answers this question",
    27: "the driver is not ready yet",
    28: "no NVIDIA GPU was found",
    29: "the GPU is in a state that does not allow it",
    30: "this kind of reset is not supported",
    999: "the driver reports an unknown error",
}


@dataclass(frozen=True, slots=True)
class Refused(Unknown):
    """An answer that the driver did not give; `code` is its nvmlReturn_t, 0 where the failure is not the driver's."""

    code: int = 0


class GpuLost(Exception):
    """The device fell off the bus between two questions."""


class Driver:
    """The loaded vendor module `pynvml`, asked by function name."""

    def __init__(self, vendor: ModuleType) -> None:
        self._vendor = vendor

    def ask(self, question: str, *arguments: Any) -> Any:
        """What `pynvml.<question>(*arguments)` returns about one device, or Refused. Raises GpuLost."""
        answer = self.ask_system(question, *arguments)
        if isinstance(answer, Refused) and answer.code == GPU_IS_LOST:
            raise GpuLost(answer.why)
        return answer

    def ask_system(self, question: str, *arguments: Any) -> Any:
        """The same about the driver itself, which one lost GPU must not end: a value or Refused, never an exception."""
        try:
            return getattr(self._vendor, question)(*arguments)
        except self._vendor.NVMLError as error:
            return Refused(sentence(error), int(getattr(error, "value", 999)))
        except AttributeError:
            return Refused("the installed nvidia-ml-py is too old to ask for it", FUNCTION_NOT_FOUND)
        except UnicodeDecodeError:
            return Refused("the driver's answer is not text")

    def constant(self, name: str) -> int | None:
        """A number that the vendor module defines, None where this version of it does not."""
        value = getattr(self._vendor, name, None)
        return value if isinstance(value, int) else None

    def first(self, *questions: str, handle: Any = None) -> Any:
        """The answer to the first question that this driver and this package know."""
        answer: Any = Refused("nothing was asked")
        for question in questions:
            answer = self.ask_system(question) if handle is None else self.ask(question, handle)
            if not (isinstance(answer, Refused) and answer.code == FUNCTION_NOT_FOUND):
                return answer
        return answer


def bus_id(pci: Any) -> str:
    """`00000000:1B:00.0`, as nvidia-smi prints it, of a `nvmlPciInfo_t`; older bindings hand out bytes."""
    raw = pci.busId
    return (raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)).upper()


def sentence(error: Exception) -> str:
    """A vendor error in plain words: every `pynvml.NVMLError` has a code, a new one is named by its number."""
    code = getattr(error, "value", None)
    return _SENTENCES.get(code, f"the driver reports error {code}") if isinstance(code, int) else _SENTENCES[999]

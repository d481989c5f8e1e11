"""What holds a board back now: power cap, ECC, and why its clocks are low.

What a board does not offer (ECC on GeForce, a power cap on integrated parts) is no news; any other gap is a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.probe.nvml_driver import NOT_SUPPORTED, Refused


if TYPE_CHECKING:
    from vllm_advisor.probe.notes import Subject


# nvmlClocksEventReason* of nvml.h. Idle (0x01) and application clocks (0x02) are left out: the first is no loss, the
# second is set on many data-centre boards as they come.
_HW_SLOWDOWN, _HW_CAUSES = 0x08, 0x40 | 0x80
_REASONS = (
    (0x04, "the power cap"),
    (0x20, "temperature (software limit)"),
    (0x40, "temperature (hardware limit)"),
    (0x80, "the power supply's brake signal"),
)


class State(NamedTuple):
    """Watts that the board may draw, and whether ECC is on; None: the board has no such thing, or would not tell."""

    power_cap_watts: float | None
    ecc: bool | None


def read(board: Subject) -> State:
    """Power and ECC; notes on a lowered power cap, on throttling and on what could not be read."""
    _note_throttling(board)
    return State(_power_cap(board), _ecc(board))


def _power_cap(board: Subject) -> float | None:
    cap = board.first("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
    if isinstance(cap, Unknown):
        _note_gap("the power cap", cap, board)
        return None
    usual = board.ask("nvmlDeviceGetPowerManagementDefaultLimit")
    if not isinstance(usual, Unknown) and cap < usual:
        board.note(f"the power cap is {cap / 1000:g} W, its default is {usual / 1000:g} W")
    return float(cap) / 1000  # NVML counts milliwatts


def _ecc(board: Subject) -> bool | None:
    mode = board.ask("nvmlDeviceGetEccMode")
    if isinstance(mode, Unknown):
        _note_gap("the ECC mode", mode, board)
        return None
    current, pending = mode
    if current != pending:
        board.note(f"ECC is to be switched {'on' if pending else 'off'} at the next reboot: memory may change")
    return bool(current)


def _note_throttling(board: Subject) -> None:
    bits = board.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    if isinstance(bits, Unknown):
        _note_gap("whether it is throttled", bits, board)
        return
    reasons = [words for bit, words in _REASONS if bits & bit]
    if bits & _HW_SLOWDOWN and not bits & _HW_CAUSES:
        reasons.append("a hardware slowdown")
    if reasons:
        board.note(f"throttled now by {' and '.join(reasons)}: slower than its data sheet")


def _note_gap(what: str, gap: Unknown, board: Subject) -> None:
    if not (isinstance(gap, Refused) and gap.code == NOT_SUPPORTED):
        board.note(f"{what} is not known: {gap.why}")

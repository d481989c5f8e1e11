"""Leave to do something, or what stands against it: the common answer of windows, idleness, guards and allowance."""

from __future__ import annotations

from typing import NamedTuple


class Permit(NamedTuple):
    """Granted or not. `by` names who refuses (window, idle, allowance, back-off, lease …), `why` is one line."""

    granted: bool
    by: str = ""
    why: str = ""


GRANTED = Permit(granted=True)

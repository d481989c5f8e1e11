"""What every kind of unit can do. Which plan runs is read off the unit itself, never off our own memory.

Each start leaves the profile's id where the unit is: in the environment of the child, in the drop-in of the systemd
unit, in a label of the container. So a daemon that was killed anywhere finds what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol


if TYPE_CHECKING:
    from vllm_advisor.plan import LaunchCommand
    from vllm_tuner.daemon.orphans import Process

# The variable, or label, that holds the id of the profile that a unit was started with.
PROFILE = "ADVISOR_PROFILE"
# Something runs that is neither what it came with nor a profile of ours: a start that was cut off, or another hand's.
FOREIGN = "?"


class State(NamedTuple):
    """The unit's processes: whether they are up, and with which profile ("": the command that it came with)."""

    up: bool
    profile: str = ""
    why: str = ""


class Managed(Protocol):
    """One unit. Every method raises EngineError with what the system said.

    `supervised`: nobody but the daemon starts it again when it dies.
    """

    supervised: bool

    def running(self) -> State:
        """What is there now."""

    def command(self) -> LaunchCommand:
        """The command that it came with, whatever runs now. Raises UsageError where there is none."""

    def start(self, command: LaunchCommand, profile: str) -> None:
        """Stop what runs, and start it anew with this command; returns before it serves."""

    def restore(self) -> None:
        """Stop what runs, and start it with the command that it came with."""

    def stop(self) -> None:
        """Stop what runs, and wait until it has; `start` and `restore` bring it back."""

    def processes(self) -> tuple[Process, ...]:
        """All of its processes, as far as they can be seen."""

    def leave(self) -> None:
        """The daemon ends: stop what would be nobody's."""

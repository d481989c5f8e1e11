"""Where the wizard's state lies between runs: one small file, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_advisor.errors import BadInput
from vllm_advisor.tui.state import State, from_json, to_json


_NAME = "wizard.json"


def place() -> Path:
    """The file in the user's state folder; ADVISOR_WIZARD_STATE names another one."""
    given = os.environ.get("ADVISOR_WIZARD_STATE")
    if given:
        return Path(given)
    import platformdirs

    return platformdirs.user_state_path("vllm-advisor") / _NAME


def save(state: State, file: Path) -> None:
    """Replace the file; a crash leaves the old or the new one. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(f".{os.getpid()}.new")
    try:
        beside.write_text(to_json(state), encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def load(file: Path) -> State:
    """What was kept last. Raises BadInput where there is nothing, or nothing that can be read."""
    try:
        return from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("nothing to resume: no state of the wizard is kept", "advisor wizard") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the wizard's state cannot be read: {error}", "start without --resume") from error

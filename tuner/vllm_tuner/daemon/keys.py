"""Values of secrets, read where they are named when they are needed, and never kept in a configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput


if TYPE_CHECKING:
    from vllm_tuner.daemon.config import Secret

_LARGEST = 4096


def value(secret: Secret) -> str:
    """The secret, "" where none is named. Raises BadInput, which names the place and never the value."""
    if secret.env:
        found = os.environ.get(secret.env, "")
        if not found:
            raise BadInput(f"the variable {secret.env} is empty or not set")
        return found.strip()
    if not secret.file:
        return ""
    try:
        with Path(secret.file).expanduser().open("rb") as file:
            text = file.read(_LARGEST).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise BadInput(f"the secret in {secret.file} cannot be read: {why}") from None
    if not text:
        raise BadInput(f"the secret in {secret.file} is empty")
    return text

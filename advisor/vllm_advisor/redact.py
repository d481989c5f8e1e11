"""What must not leave the machine in a text: access keys, and folders that name a person."""

from __future__ import annotations

import re
from pathlib import Path


# Access keys of the hub, of OpenAI-like services, of GitHub and of AWS, wherever they stand.
_TOKEN = re.compile(r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b")
_HOME = re.compile(r"(/home/|/Users/|/root\b|[A-Za-z]:\\Users\\)[^\s\"']*")


def clean(text: str) -> str:
    """Without tokens and without paths into somebody's home."""
    home = str(Path.home())
    short = text.replace(home, "~") if len(home) > 1 else text
    return _HOME.sub("[folder removed]", _TOKEN.sub("[token removed]", short))

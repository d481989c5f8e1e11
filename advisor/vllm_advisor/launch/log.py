"""What to show of a server's log: the line that says why, and nothing that a stranger should not read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TAIL_BYTES = 256 * 1024
# Python's last line of a traceback, wherever vLLM's own prefix puts it: `(EngineCore pid=7) ERROR … ValueError: why`.
_CAUSE = re.compile(r"\b(?P<cause>(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Exit|Interrupt)\b: .+)$")
_ARGPARSE = re.compile(r"(?P<cause>\berror: .+)$")
# These only point at another line: the engine's child died, and the reason stands above.
_POINTERS = ("Engine core initialization failed", "Failed core proc", "WorkerProc initialization failed")
_HF_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_BEARER = re.compile(r"(?i)\b(bearer\s+|api[-_]key['\"]?\s*[=:\s]\s*['\"\[]*)[^\s'\",\])]+")
_SECRET_NAME = re.compile(r"(?i)(token|secret|password|api_?key|credential)")
_SHORTEST_SECRET = 8


def tail(path: Path) -> str:
    """The end of a log file, at most 256 KiB; "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def last_words(text: str) -> str:
    """The last line that names an error and its reason, else the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [found["cause"] for line in lines if (found := _CAUSE.search(line) or _ARGPARSE.search(line))]
    reasons = [cause for cause in causes if not any(pointer in cause for pointer in _POINTERS)]
    return (reasons or causes or lines or ["it wrote nothing"])[-1]


def scrub(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without tokens, keys and the home folder's path."""
    clean = _BEARER.sub(r"\1***", _HF_TOKEN.sub("hf_***", text))
    for secret in secrets(os.environ if environment is None else environment):
        clean = clean.replace(secret, "***")
    return clean.replace(str(Path.home()), "~") if Path.home() != Path("/") else clean


def secrets(environment: Mapping[str, str]) -> Iterable[str]:
    """The values of variables that are called a token, key, secret or password, the longest first."""
    named = (value for name, value in environment.items() if _SECRET_NAME.search(name))
    return sorted({v for v in named if len(v) >= _SHORTEST_SECRET}, key=len, reverse=True)

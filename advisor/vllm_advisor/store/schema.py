"""Which schema this release writes, and where the database lies. Known without a database library.

`HEAD` is the last migration; a store with another revision was written by a newer release.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from vllm_advisor.errors import StoreError


REVISIONS = ("0001",)
HEAD = REVISIONS[-1]
VARIABLE = "ADVISOR_DATABASE_URL"
BUSY_MS = 5000  # longest wait for another writer: a transaction of ours takes milliseconds
_PORTABLE = ("postgres://", "postgresql://", "postgresql+psycopg://")


class Place(NamedTuple):
    """Where a store lies: `path` of a SQLite file, or `url` of a PostgreSQL server with its password."""

    url: str
    path: Path | None = None
    read_only: bool = False

    @property
    def shown(self) -> str:
        """For messages: the file, or the address without its password."""
        if self.path is not None:
            return str(self.path)
        scheme, _, rest = self.url.partition("://")
        user, at, host = rest.rpartition("@")
        return f"{scheme}://{user.split(':')[0]}{at}{host.partition('?')[0]}"


def place(url: str | Path | None = None) -> Place:
    """The store asked for: a file, a URL, ADVISOR_DATABASE_URL, or the user's data folder. Raises StoreError."""
    asked = url if url is not None else os.environ.get(VARIABLE) or _default()
    if isinstance(asked, Path) or "://" not in asked:
        return Place("", Path(asked).expanduser())
    if asked.startswith("sqlite:///"):
        return _sqlite(asked.removeprefix("sqlite:///"))
    for prefix in _PORTABLE:
        if asked.startswith(prefix):
            return Place("postgresql://" + asked.removeprefix(prefix))
    scheme = asked.partition("://")[0]
    hint = f"{VARIABLE}=sqlite:////srv/advisor.db or postgresql://user@host/advisor"
    raise StoreError(f"a store in {scheme} is not supported", hint)


def _sqlite(rest: str) -> Place:
    """`/srv/advisor.db`, or SQLite's own `file:/srv/advisor.db?mode=ro`."""
    name, _, query = rest.removeprefix("file:").partition("?")
    if not name or name == ":memory:":
        raise StoreError("a store in memory keeps nothing", f"{VARIABLE}=sqlite:////srv/advisor.db")
    return Place("", Path(name).expanduser(), read_only="mode=ro" in query.split("&"))


def _default() -> Path:
    """`advisor.db` in the user's data folder, as platformdirs has it; said here for Linux: the library costs 8 ms."""
    if sys.platform == "linux":
        data = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (data if data.is_absolute() else Path.home() / ".local/share") / "vllm-advisor" / "advisor.db"
    from platformdirs import user_data_path  # noqa: PLC0415 - a given place needs none

    return user_data_path("vllm-advisor", appauthor=False) / "advisor.db"


def may_exist(url: str | Path | None = None) -> bool:
    """Whether there is a store to look into; one that cannot be told of is, and says why then."""
    try:
        found = place(url)
    except StoreError:
        return True
    return found.path is None or found.path.exists()


def newer(found: str, shown: str) -> StoreError:
    """The store was written by a release that came after this one."""
    return StoreError(
        f"{shown} has schema {found}, this release knows {HEAD}: a newer vllm-advisor wrote it",
        f"pip install --upgrade vllm-advisor, or take another store: {VARIABLE}=sqlite:////path/advisor.db",
    )


def older(found: str, shown: str) -> StoreError:
    """The store waits for its upgrade, which the next command that writes does."""
    return StoreError(f"{shown} has schema {found}, this release writes {HEAD}", "advisor profiles list upgrades it")

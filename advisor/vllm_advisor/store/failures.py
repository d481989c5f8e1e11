"""What a database says when it cannot, as one line and the command that helps: the only place that reads its errors."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_advisor.errors import StoreError
from vllm_advisor.store.schema import BUSY_MS, VARIABLE


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.store.schema import Place

_ELSEWHERE = f"{VARIABLE}=sqlite:////path/advisor.db"


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raises StoreError for whatever the driver or SQLAlchemy raises inside."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - lookup knows no database library

    try:
        yield
    except DBAPIError as error:
        raise of_driver(error.orig or error, place) from error
    except sqlite3.Error as error:
        raise of_driver(error, place) from error
    except ModuleNotFoundError as error:
        raise no_driver(error) from None
    except SQLAlchemyError as error:
        raise StoreError(f"{place.shown}: {_short(error)}", "advisor profiles list") from error


def of_driver(error: BaseException, place: Place) -> StoreError:
    """The failure of one statement, by SQLite's own error code or PostgreSQL's state."""
    if isinstance(error, sqlite3.Error):
        return _sqlite(error, place)
    return _postgres(error, place)


def _sqlite(error: sqlite3.Error, place: Place) -> StoreError:
    name = str(getattr(error, "sqlite_errorname", ""))
    for prefix, (what, hint) in _sqlite_causes(place).items():
        if name.startswith(prefix):
            return StoreError(f"{place.shown} {what}", hint)
    return StoreError(f"{place.shown}: {_short(error)}", f"sqlite3 {place.shown} 'PRAGMA integrity_check'")


def _sqlite_causes(place: Place) -> dict[str, tuple[str, str]]:
    """By the beginning of SQLite's error name (sqlite.org/rescode.html)."""
    path, folder = place.shown, place.path.parent if place.path else ""
    broken = f"mv {path} {path}.broken (the next run starts anew), or save rows: sqlite3 {path} .recover"
    held = f"another program has held it for {BUSY_MS // 1000} s"
    return {
        "SQLITE_FULL": ("cannot grow: the disk is full", f"df -h {folder}"),
        "SQLITE_READONLY": ("is read-only", f"chmod u+w {path} {folder}, or {_ELSEWHERE}"),
        "SQLITE_PERM": ("may not be written", f"chmod u+w {path}, or {_ELSEWHERE}"),
        "SQLITE_CANTOPEN": ("cannot be opened", f"ls -ld {folder} {path}, or {_ELSEWHERE}"),
        "SQLITE_BUSY": (f"is locked: {held}", f"fuser -v {path}"),
        "SQLITE_LOCKED": (f"is locked: {held}", f"fuser -v {path}"),
        "SQLITE_CORRUPT": ("is corrupt", broken),
        "SQLITE_NOTADB": ("is no SQLite database", broken),
        "SQLITE_IOERR": ("cannot be read or written: the device reports an error", f"df -h {folder}; dmesg | tail"),
    }


def _postgres(error: BaseException, place: Place) -> StoreError:
    state = str(getattr(error, "sqlstate", None) or "")
    what, hint = _POSTGRES.get(state[:2], ("", ""))
    if not what and not state:
        what, hint = "does not answer", "pg_isready -h HOST -p PORT, and look at " + VARIABLE
    return StoreError(f"{place.shown} {what or 'says'}: {_short(error)}", hint or "look at the server's log")


# By the class of the state (PostgreSQL's appendix A).
_POSTGRES = {
    "28": ("refuses the user", f"look at the user and password in {VARIABLE}"),
    "3D": ("has no such database", "createdb advisor"),
    "42": ("has other tables than ours", "give the advisor a database of its own: createdb advisor"),
    "53": ("has no room left", "df -h on the database server"),
    "55": ("is locked", "select * from pg_stat_activity"),
    "57": ("is stopping", "pg_isready"),
    "25": ("is read-only", f"point {VARIABLE} at the primary server"),
}


def no_driver(error: ModuleNotFoundError) -> StoreError:
    """PostgreSQL was asked for and its driver is not installed."""
    return StoreError(
        f"no driver for PostgreSQL ({error.name} is not installed)", "pip install 'vllm-advisor[postgres]'"
    )


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

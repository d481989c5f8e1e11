"""The one question that `advisor recommend` asks of the store: which profiles predict something here.

Read-only and through the standard library's sqlite3 (psycopg for a fleet's PostgreSQL), because SQLModel alone costs
more than a whole recommendation. A store that cannot be read is no reason to give no advice: the answer is a note.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError
from vllm_advisor.fingerprint import key
from vllm_advisor.profile import Origin, Profile, Provenance
from vllm_advisor.store import form, schema


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Readings
    from vllm_advisor.store.schema import Place

_WAIT_S = 0.5  # for a writer that is opening or folding its log; advice does not wait long
_LIMIT = 64  # profiles of one kind of machine and model; the newest say most
_COLUMNS = (
    "p.id, p.model, p.plan, p.flags, p.origin, p.by, p.at, p.node, p.source, p.note, p.validated_at, "
    "f.strict, f.loose, m.workload, m.figures, m.repeats, m.seconds, m.tool, m.at"
)
_QUESTION = f"""
SELECT {_COLUMNS}
FROM fingerprints f JOIN profiles p ON p.fingerprint_id = f.id JOIN measurements m ON m.id =
    (SELECT max(x.id) FROM measurements x WHERE x.profile_id = p.id)
WHERE f.loose_key IN (%s) ORDER BY p.at DESC, p.id LIMIT {_LIMIT}
"""  # noqa: S608 - constants only; values are bound


class Found(NamedTuple):
    """Profiles, the newest first, and why there are none where the store could not be read."""

    profiles: tuple[Profile, ...] = ()
    note: str = ""


def profiles_like(wanted: Sequence[Readings], url: str | Path | None = None) -> Found:
    """Profiles whose loose fingerprint is one of `wanted`; nothing, and no note, where there is no store yet."""
    try:
        place = schema.place(url)
        if place.path is not None and not place.path.exists():
            return Found()
        rows = _rows(place, [key(loose) for loose in wanted])
    except AdvisorError as error:
        return Found(note=f"no measured profile was looked for: {error.message}")
    profiles, broken = [], 0
    for row in rows:
        try:
            profiles.append(_profile(row))
        except (AdvisorError, ValueError):
            broken += 1
    note = f"{broken} stored profiles cannot be read: advisor profiles validate" if broken else ""
    return Found(tuple(profiles), note)


def _rows(place: Place, keys: list[str]) -> list[tuple[Any, ...]]:
    return _postgres(place, keys) if place.path is None else _sqlite(place.path, keys)


def _sqlite(path: Path, keys: list[str]) -> list[tuple[Any, ...]]:
    """Raises StoreError."""
    import sqlite3  # noqa: PLC0415 - where there is no store, nothing is loaded

    from vllm_advisor.store.failures import of_driver  # noqa: PLC0415 - where there is no store, nothing is loaded

    try:
        connection = _opened(path)
        try:
            _check(connection.execute("SELECT version_num FROM alembic_version").fetchone(), path)
            marks = ", ".join("?" * len(keys))
            rows: list[tuple[Any, ...]] = connection.execute(_QUESTION % marks, keys).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise of_driver(error, schema.Place("", path)) from error
    return rows


def _opened(path: Path) -> Any:
    """Read-only; where the folder is so too, and no write-ahead log is left, as a file that does not change."""
    import sqlite3  # noqa: PLC0415 - where there is no store, nothing is loaded
    from urllib.parse import quote  # noqa: PLC0415 - where there is no store, nothing is loaded

    name = quote(str(path.absolute()))
    try:
        connection = sqlite3.connect(f"file:{name}?mode=ro", uri=True, timeout=_WAIT_S)
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        log = Path(f"{path}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return sqlite3.connect(f"file:{name}?immutable=1", uri=True, timeout=_WAIT_S)
    return connection


def _postgres(place: Place, keys: list[str]) -> list[tuple[Any, ...]]:
    """Raises StoreError."""
    from vllm_advisor.store.failures import no_driver, of_driver  # noqa: PLC0415 - where there is no store, nothing is loaded

    try:
        import psycopg  # noqa: PLC0415 - where there is no store, nothing is loaded
    except ModuleNotFoundError as error:
        raise no_driver(error) from None
    try:
        with psycopg.connect(place.url, connect_timeout=2, options="-c default_transaction_read_only=on") as connection:
            _check(connection.execute("SELECT version_num FROM alembic_version").fetchone(), place.shown)
            return connection.execute(_QUESTION % ", ".join(["%s"] * len(keys)), keys).fetchall()
    except psycopg.Error as error:
        raise of_driver(error, place) from error


def _check(row: tuple[Any, ...] | None, shown: object) -> None:
    """Raises StoreError where another release wrote the store."""
    found = str(row[0]) if row else "none"
    if found in schema.REVISIONS[:-1]:
        raise schema.older(found, str(shown))
    if found != schema.HEAD:
        raise schema.newer(found, str(shown))


def _profile(row: tuple[Any, ...]) -> Profile:
    number, model, plan, flags, origin, by, at, node, source, note, validated_at, strict, loose, *measured = row
    load, figures, repeats, seconds, tool, measured_at = measured
    plain = {"figures": json.loads(figures), "repeats": repeats, "seconds": seconds, "tool": tool, "at": measured_at}
    workload = json.loads(load)
    return Profile(
        form.fingerprint_from(json.loads(strict), json.loads(loose)),
        form.plan_from(json.loads(plan)),
        form.measurement_from(plain | ({"workload": workload} if workload is not None else {})),
        provenance=Provenance(Origin(origin), by, at, node, source, note, (), validated_at),
        model=model,
        id=number,
        flags=form.flags_from(json.loads(flags)),
    )

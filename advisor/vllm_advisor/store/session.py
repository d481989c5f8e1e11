"""One short transaction at a time: what every part of the store is built on."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlmodel import Session, select

from vllm_advisor.fingerprint import canonical, key
from vllm_advisor.store import form
from vllm_advisor.store.engine import writing
from vllm_advisor.store.failures import translated
from vllm_advisor.store.tables import FingerprintRow


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.engine import Engine

    from vllm_advisor.profile import Fingerprint
    from vllm_advisor.store.schema import Place


class Sessions:
    """An open store. `now` is its clock."""

    def __init__(self, engine: Engine, place: Place, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._writer = writing(engine)
        self.place = place
        self.now = now

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with translated(self.place), Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        """Committed when the block ends, undone when it raises; holds the write lock from its first line."""
        with translated(self.place), Session(self._writer, expire_on_commit=False) as session:
            yield session
            session.commit()

    def close(self) -> None:
        """Give the connections back; the last one folds the write-ahead log into the file."""
        self._engine.dispose()


def fingerprint_id(session: Session, found: Fingerprint) -> int:
    """The row of a fingerprint, made if there is none."""
    strict, loose = key(found.strict), key(found.loose)
    asked = select(FingerprintRow).where(FingerprintRow.strict_key == strict, FingerprintRow.loose_key == loose)
    row = session.exec(asked).first()
    if row is None:
        row = FingerprintRow(
            strict_key=strict, loose_key=loose, strict=canonical(found.strict), loose=canonical(found.loose)
        )
        session.add(row)
        session.flush()
    return row.id or 0


def fingerprint_of(row: FingerprintRow) -> Fingerprint:
    """The value of a row."""
    return form.fingerprint_from(json.loads(row.strict), json.loads(row.loose))

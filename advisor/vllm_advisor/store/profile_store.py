"""`ProfileStore`: everything that is kept, as domain values in and out, each call one short transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import text

from vllm_advisor.store import engine, schema
from vllm_advisor.store.failures import translated
from vllm_advisor.store.journal import Calibrations, Journal, Kernels
from vllm_advisor.store.leases import Leases
from vllm_advisor.store.profiles import Profiles
from vllm_advisor.store.trials import Trials


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self


class ProfileStore(Trials, Profiles, Leases, Journal, Kernels, Calibrations):
    """An open store; a context manager. Every method raises StoreError with the command that helps."""

    @classmethod
    def open(cls, url: str | Path | None = None, now: Callable[[], float] = time.time) -> Self:
        """The store at a file or address, else at ADVISOR_DATABASE_URL, else in the user's data folder.

        Makes it, or brings its schema up to date, where that is needed.
        """
        place = schema.place(url)
        opened = engine.connect(place)
        try:
            engine.prepare(opened, place)
        except BaseException:
            opened.dispose()
            raise
        return cls(opened, place, now)

    def integrity(self) -> str:
        """`ok`, or what the database finds wrong with itself (PostgreSQL answers for its own files)."""
        if self.place.path is None:
            return "ok"
        with translated(self.place), self._engine.connect() as connection:
            return str(connection.execute(text("PRAGMA integrity_check")).scalar())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

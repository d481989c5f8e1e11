"""Events (the newest are kept), tuned kernels by all that their time depends on, and calibrations."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlmodel import col, select

from vllm_advisor.profile import Calibration, Event, KernelConfig, KernelKey
from vllm_advisor.store import form
from vllm_advisor.store.session import Sessions
from vllm_advisor.store.tables import CalibrationRow, EventRow, KernelConfigRow


if TYPE_CHECKING:
    from collections.abc import Sequence

# A year of one line an hour; a row is some 200 bytes.
EVENTS_KEPT = 10_000
_PRUNE_EVERY = 64
# Kinds of rows that hold a text which replaces itself: no history, and never dropped for their age.
_KEPT = "kept:"


class Journal(Sessions):
    """What the tuner did. `events_kept` bounds the events."""

    events_kept = EVENTS_KEPT

    def record(self, event: Event) -> int:
        """Keep an event and, now and then, drop the oldest; returns its number."""
        with self._write() as session:
            row = EventRow(
                at=event.at or self.now(),
                kind=event.kind,
                node=event.node,
                message=event.message,
                details=form.dumps(form.settings_to(event.details)),
            )
            session.add(row)
            session.flush()
            number = row.id or 0
            if number % min(_PRUNE_EVERY, self.events_kept) == 0:
                old = col(EventRow.id) <= number - self.events_kept
                session.exec(delete(EventRow).where(old, ~col(EventRow.kind).startswith(_KEPT, autoescape=True)))
            return number

    def events(self, last: int = 100, kind: str | None = None, node: str | None = None) -> tuple[Event, ...]:
        """The newest events, the newest first."""
        asked = select(EventRow).order_by(col(EventRow.id).desc()).limit(last)
        asked = asked.where(~col(EventRow.kind).startswith(_KEPT, autoescape=True))
        asked = asked.where(EventRow.kind == kind) if kind else asked
        asked = asked.where(EventRow.node == node) if node else asked
        with self._read() as session:
            return tuple(_event(row) for row in session.exec(asked))

    def keep(self, kind: str, node: str, text: str | None) -> None:
        """Keep one text of a kind for a node in the place of the one before; None: drop it."""
        with self._write() as session:
            session.exec(delete(EventRow).where(col(EventRow.kind) == _KEPT + kind, col(EventRow.node) == node))
            if text is not None:
                session.add(EventRow(at=self.now(), kind=_KEPT + kind, node=node, message=text, details="{}"))

    def kept(self, kind: str, node: str) -> str | None:
        """The text of a kind for a node, None where there is none."""
        asked = select(EventRow.message).where(EventRow.kind == _KEPT + kind, EventRow.node == node)
        with self._read() as session:
            return session.exec(asked.order_by(col(EventRow.id).desc()).limit(1)).first()


class Kernels(Sessions):
    """Launches that were timed."""

    def save_kernel(self, config: KernelConfig) -> None:
        """Keep a launch; one of the same key is replaced."""
        with self._write() as session:
            session.merge(
                KernelConfigRow(
                    key=_key(config.key),
                    **config.key._asdict(),
                    settings=form.dumps(form.settings_to(config.settings)),
                    median_us=config.median_us,
                    default_us=config.default_us,
                    kept=config.kept,
                    at=config.at or self.now(),
                )
            )

    def kernel(self, wanted: KernelKey) -> KernelConfig | None:
        """The launch for exactly this key, None where it was not timed."""
        with self._read() as session:
            row = session.get(KernelConfigRow, _key(wanted))
            return _kernel(row) if row else None

    def kernel_before(self, wanted: KernelKey) -> KernelConfig | None:
        """The newest launch of the same kernel, bucket and architecture under other versions: the first candidate."""
        same = ("kernel", "bucket", "arch")
        asked = select(KernelConfigRow).where(*(getattr(KernelConfigRow, n) == getattr(wanted, n) for n in same))
        others = asked.where(KernelConfigRow.key != _key(wanted))
        with self._read() as session:
            row = session.exec(others.order_by(col(KernelConfigRow.at).desc()).limit(1)).first()
            return _kernel(row) if row else None

    def kernels(self, kernel: str | None = None) -> tuple[KernelConfig, ...]:
        """All launches, or those of one kernel, by key."""
        asked = select(KernelConfigRow).order_by(col(KernelConfigRow.kernel), col(KernelConfigRow.key))
        with self._read() as session:
            rows = session.exec(asked.where(KernelConfigRow.kernel == kernel) if kernel else asked)
            return tuple(_kernel(row) for row in rows)


class Calibrations(Sessions):
    """Values that real prompts gave."""

    def save_calibration(self, found: Calibration) -> int:
        """Keep a calibration; returns its number."""
        with self._write() as session:
            row = CalibrationRow(
                kind=found.kind,
                model=found.model,
                revision=found.revision,
                entries=form.dumps(dict(found.values)),
                summary=found.summary,
                at=found.at or self.now(),
            )
            session.add(row)
            session.flush()
            return row.id or 0

    def calibrations(self, model: str, kind: str | None = None) -> tuple[Calibration, ...]:
        """Those of a model, the newest first."""
        asked = select(CalibrationRow).where(CalibrationRow.model == model).order_by(col(CalibrationRow.id).desc())
        with self._read() as session:
            rows: Sequence[CalibrationRow] = session.exec(
                asked.where(CalibrationRow.kind == kind) if kind else asked
            ).all()
            return tuple(_calibration(row) for row in rows)


def _key(key: KernelKey) -> str:
    return hashlib.sha256(form.dumps(key).encode()).hexdigest()


def _event(row: EventRow) -> Event:
    return Event(row.kind, row.message, row.node, form.settings_from(json.loads(row.details)), row.at, row.id or 0)


def _kernel(row: KernelConfigRow) -> KernelConfig:
    key = KernelKey(*(getattr(row, name) for name in KernelKey._fields))
    settings = form.settings_from(json.loads(row.settings))
    return KernelConfig(key, settings, row.median_us, row.default_us, row.kept, row.at)


def _calibration(row: CalibrationRow) -> Calibration:
    values = tuple(sorted((name, float(value)) for name, value in json.loads(row.entries).items()))
    return Calibration(row.kind, row.model, row.revision, values, row.summary, row.at)

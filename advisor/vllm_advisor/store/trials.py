"""Trials: each change of state is one transaction, so that a killed tuner loses at most the trial that was running."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlmodel import col, select, update

from vllm_advisor.errors import StoreError
from vllm_advisor.profile import Trial, TrialState
from vllm_advisor.store import form, owner, results
from vllm_advisor.store.session import Sessions, fingerprint_id, fingerprint_of
from vllm_advisor.store.tables import FingerprintRow, TrialRow


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlmodel import Session

    from vllm_advisor.profile import Measurement, QualityResult

LOST = "its process ended without a result"


class Trials(Sessions):
    """What a search has tried and will try."""

    def add_trial(self, trial: Trial) -> int:
        """Keep a trial, WAITING; returns its number."""
        with self._write() as session:
            row = TrialRow(
                study=trial.study,
                kind=trial.kind,
                node=trial.node,
                fingerprint_id=fingerprint_id(session, trial.fingerprint) if trial.fingerprint else None,
                plan=form.dumps(form.plan_to(trial.plan) if trial.plan else None),
                settings=form.dumps(form.settings_to(trial.settings)),
                state=TrialState.WAITING,
                created=trial.created or self.now(),
            )
            session.add(row)
            session.flush()
            return row.id or 0

    def start(self, number: int, by: str | None = None) -> None:
        """WAITING → RUNNING, signed by who runs it (`owner.me()`). Raises StoreError where it waits no longer."""
        signed = by or owner.me()
        values = {"state": TrialState.RUNNING, "owner": signed, "started": self.now()}
        self._move(number, (TrialState.WAITING,), values)

    def finish(
        self,
        number: int,
        state: TrialState,
        measurement: Measurement | None = None,
        *,
        reason: str = "",
        quality: Sequence[QualityResult] = (),
    ) -> None:
        """RUNNING, or WAITING for one that never began → an end, with what was measured or why not.

        Raises StoreError where it has ended before, ValueError for a state that is no end or lacks its figures.
        """
        if not state.is_final or (state is TrialState.COMPLETE) != (measurement is not None):
            raise ValueError(f"a trial ends as {state} {'with' if measurement else 'without'} a measurement")
        values = {"state": state, "reason": reason, "finished": self.now()}
        self._move(number, (TrialState.RUNNING, TrialState.WAITING), values, measurement, quality)

    def _move(
        self,
        number: int,
        before: tuple[TrialState, ...],
        values: dict[str, object],
        measurement: Measurement | None = None,
        quality: Sequence[QualityResult] = (),
    ) -> None:
        with self._write() as session:
            row = session.get(TrialRow, number)
            if row is None:
                raise StoreError(f"there is no trial {number}", "tuner status")
            if row.state not in before:
                raise StoreError(f"trial {number} is {row.state} already", "tuner status")
            for name, value in values.items():
                setattr(row, name, value)
            session.add(row)
            results.add(session, {"trial_id": number}, measurement, quality)

    def recover_stale(self, node: str, alive: Callable[[str], bool] = owner.alive) -> tuple[int, ...]:
        """RUNNING trials of a node whose owner is gone become FAILED; returns their numbers."""
        with self._write() as session:
            running = select(TrialRow).where(TrialRow.state == TrialState.RUNNING, TrialRow.node == node)
            lost = [row for row in session.exec(running) if not alive(row.owner)]
            values = {"state": TrialState.FAILED, "reason": LOST, "finished": self.now()}
            numbers = [row.id or 0 for row in lost]
            session.exec(update(TrialRow).where(col(TrialRow.id).in_(numbers)).values(**values))
            return tuple(sorted(numbers))

    def trials(self, study: str | None = None, state: TrialState | None = None) -> tuple[Trial, ...]:
        """Trials in the order in which they were made, with their results."""
        asked = select(TrialRow).order_by(col(TrialRow.id))
        asked = asked.where(TrialRow.study == study) if study is not None else asked
        asked = asked.where(TrialRow.state == state) if state is not None else asked
        with self._read() as session:
            return _values(session, list(session.exec(asked)))

    def trial(self, number: int) -> Trial:
        """One trial. Raises StoreError where there is none."""
        with self._read() as session:
            row = session.get(TrialRow, number)
            if row is None:
                raise StoreError(f"there is no trial {number}", "tuner status")
            return _values(session, [row])[0]


def _values(session: Session, rows: list[TrialRow]) -> tuple[Trial, ...]:
    measured, checked = results.of_trials(session, [row.id or 0 for row in rows])
    needed = {row.fingerprint_id for row in rows if row.fingerprint_id}
    prints = session.exec(select(FingerprintRow).where(col(FingerprintRow.id).in_(needed)))
    by_id = {row.id: fingerprint_of(row) for row in prints}
    return tuple(
        _value(row)._replace(
            measurement=measured.get(row.id or 0),
            quality=checked.get(row.id or 0, ()),
            fingerprint=by_id.get(row.fingerprint_id),
        )
        for row in rows
    )


def _value(row: TrialRow) -> Trial:
    plan = json.loads(row.plan)
    return Trial(
        row.study,
        row.kind,
        form.plan_from(plan) if plan is not None else None,
        form.settings_from(json.loads(row.settings)),
        row.node,
        TrialState(row.state),
        row.reason,
        row.owner,
        row.created,
        row.started,
        row.finished,
        id=row.id or 0,
    )

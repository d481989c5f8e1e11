"""Measurements and checks of accuracy, which belong to a trial or to a profile: written and read the same way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from sqlmodel import col, select

from vllm_advisor.profile import QualityResult
from vllm_advisor.store import form
from vllm_advisor.store.tables import MeasurementRow, QualityRow
from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlmodel import Session

    from vllm_advisor.profile import Measurement

_K = TypeVar("_K")


class Of(TypedDict, total=False):
    """Whose results: one of the two."""

    trial_id: int
    profile_id: str


def add(session: Session, owner: Of, measured: Measurement | None, quality: Iterable[QualityResult]) -> None:
    """Write what was measured of a trial or a profile."""
    if measured is not None:
        plain = form.measurement_to(measured)
        session.add(
            MeasurementRow(
                **owner,
                workload=form.dumps(plain.get("workload")),
                figures=form.dumps(plain["figures"]),
                **{name: plain[name] for name in ("repeats", "seconds", "tool", "at")},
            )
        )
    for result in quality:
        plain = result._asdict()
        low, mid, high = plain.pop("value")
        session.add(QualityRow(**owner, **plain, low=low, mid=mid, high=high))


def of_trials(
    session: Session, ids: Sequence[int]
) -> tuple[dict[int, Measurement], dict[int, tuple[QualityResult, ...]]]:
    """Both kinds, by trial; the latest measurement counts."""
    measured = session.exec(
        select(MeasurementRow).where(col(MeasurementRow.trial_id).in_(ids)).order_by(_id(MeasurementRow))
    )
    checked = session.exec(select(QualityRow).where(col(QualityRow.trial_id).in_(ids)).order_by(_id(QualityRow)))
    return {row.trial_id or 0: measurement(row) for row in measured}, _grouped((r.trial_id or 0, r) for r in checked)


def of_profiles(
    session: Session, ids: Sequence[str]
) -> tuple[dict[str, Measurement], dict[str, tuple[QualityResult, ...]]]:
    """Both kinds, by profile; the latest measurement counts."""
    measured = session.exec(
        select(MeasurementRow).where(col(MeasurementRow.profile_id).in_(ids)).order_by(_id(MeasurementRow))
    )
    checked = session.exec(select(QualityRow).where(col(QualityRow.profile_id).in_(ids)).order_by(_id(QualityRow)))
    return {row.profile_id or "": measurement(row) for row in measured}, _grouped(
        (r.profile_id or "", r) for r in checked
    )


def _id(table: type[MeasurementRow | QualityRow]) -> Any:
    return col(table.id)


def _grouped(rows: Iterable[tuple[_K, QualityRow]]) -> dict[_K, tuple[QualityResult, ...]]:
    found: dict[_K, tuple[QualityResult, ...]] = {}
    for owner, row in rows:
        found[owner] = (*found.get(owner, ()), result(row))
    return found


def measurement(row: MeasurementRow) -> Measurement:
    """The value of a row."""
    plain = {name: getattr(row, name) for name in ("repeats", "seconds", "tool", "at")}
    plain["figures"] = json.loads(row.figures)
    load = json.loads(row.workload)
    return form.measurement_from(plain | ({"workload": load} if load is not None else {}))


def result(row: QualityRow) -> QualityResult:
    """The value of a row."""
    return QualityResult(row.check, Interval(row.low, row.mid, row.high), row.limit, row.passed, row.note, row.at)

"""Profiles: saved with the trials behind them in one transaction, found by id or by fingerprint."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlmodel import col, select

from vllm_advisor.errors import StoreError
from vllm_advisor.fingerprint import key
from vllm_advisor.profile import Origin, Profile, Provenance
from vllm_advisor.store import form, results
from vllm_advisor.store.session import Sessions, fingerprint_id, fingerprint_of
from vllm_advisor.store.tables import FingerprintRow, ProfileRow, ProfileTrialRow


if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlmodel import Session

    from vllm_advisor.profile import Fingerprint, Measurement, QualityResult

_ID_DIGITS = 12


class Profiles(Sessions):
    """Plans worth keeping."""

    def save_profile(self, profile: Profile, trials: Sequence[int] = ()) -> str:
        """Keep a profile with its trials as provenance, all or nothing; returns its id.

        The id is a hash of the content, so that saving twice keeps one. Raises StoreError where a measured profile
        failed a check of accuracy: it is never stored as validated.
        """
        if profile.provenance.origin is Origin.MEASURED and not profile.accurate:
            failed = ", ".join(check.check for check in profile.quality if not check.passed)
            raise StoreError(f"a plan that fails the accuracy gate is not stored ({failed})", "tuner status")
        kept = profile._replace(id=profile_id(profile))
        numbers = tuple(sorted({*trials, *profile.provenance.trials}))
        with self._write() as session:
            if session.get(ProfileRow, kept.id) is None:
                session.add(_row(kept, fingerprint_id(session, kept.fingerprint)))
                session.flush()
                results.add(session, {"profile_id": kept.id}, kept.measurement, kept.quality)
            known = session.exec(select(ProfileTrialRow.trial_id).where(ProfileTrialRow.profile_id == kept.id)).all()
            for number in numbers:
                if number not in known:
                    session.add(ProfileTrialRow(profile_id=kept.id, trial_id=number))
        return kept.id

    def profiles(self, model: str | None = None) -> tuple[Profile, ...]:
        """All profiles, or those of a model, the newest first."""
        asked = select(ProfileRow).order_by(col(ProfileRow.at).desc(), col(ProfileRow.id))
        with self._read() as session:
            return _values(session, list(session.exec(asked.where(ProfileRow.model == model) if model else asked)))

    def profile(self, prefix: str) -> Profile:
        """The profile whose id begins so. Raises StoreError for none and for several."""
        with self._read() as session:
            asked = select(ProfileRow).where(col(ProfileRow.id).startswith(prefix, autoescape=True))
            rows = list(session.exec(asked.order_by(col(ProfileRow.id)).limit(4))) if prefix else []
            if len(rows) == 1 or (rows and rows[0].id == prefix):
                return _values(session, rows[:1])[0]
        if rows:
            raise StoreError(f"{prefix} begins several ids: {', '.join(row.id for row in rows)}", "write more of it")
        raise StoreError(f"there is no profile {prefix!r}", "advisor profiles list")

    def matching(self, wanted: Fingerprint) -> tuple[Profile, ...]:
        """Profiles that predict something for this fingerprint, strict matches first, then the newest."""
        with self._read() as session:
            prints = select(FingerprintRow.id).where(FingerprintRow.loose_key == key(wanted.loose))
            asked = select(ProfileRow).where(col(ProfileRow.fingerprint_id).in_(prints))
            found = _values(session, list(session.exec(asked.order_by(col(ProfileRow.at).desc(), col(ProfileRow.id)))))
        return tuple(sorted(found, key=lambda profile: not wanted.same(profile.fingerprint)))

    def validated(self, number: str, measured: Measurement, quality: Sequence[QualityResult] = ()) -> None:
        """An imported profile was measured here: its figures are ours from now on. Raises StoreError."""
        if not all(check.passed for check in quality):
            raise StoreError(
                f"profile {number} fails the accuracy gate and stays a prior", f"advisor profiles rm {number}"
            )
        with self._write() as session:
            row = session.get(ProfileRow, number)
            if row is None:
                raise StoreError(f"there is no profile {number!r}", "advisor profiles list")
            row.validated_at = self.now()
            session.add(row)
            results.add(session, {"profile_id": number}, measured, quality)

    def remove_profile(self, number: str) -> None:
        """Drop a profile and its results; its trials stay. Raises StoreError where there is none."""
        with self._write() as session:
            gone = session.exec(delete(ProfileRow).where(col(ProfileRow.id) == number))
            if not gone.rowcount:
                raise StoreError(f"there is no profile {number!r}", "advisor profiles list")


def profile_id(profile: Profile) -> str:
    """The first digits of a hash over all that makes a profile what it is."""
    content = {
        "fingerprint": [key(profile.fingerprint.strict), key(profile.fingerprint.loose)],
        "plan": form.plan_to(profile.plan),
        "flags": form.settings_to(profile.flags),
        "measurement": form.measurement_to(profile.measurement),
        "quality": [form.quality_to(check) for check in profile.quality],
        "origin": profile.provenance.origin,
        "model": profile.model,
    }
    return hashlib.sha256(form.dumps(content).encode()).hexdigest()[:_ID_DIGITS]


def _row(profile: Profile, print_id: int) -> ProfileRow:
    origin = profile.provenance
    return ProfileRow(
        id=profile.id,
        fingerprint_id=print_id,
        model=profile.model or profile.plan.checkpoint,
        plan=form.dumps(form.plan_to(profile.plan)),
        flags=form.dumps(form.settings_to(profile.flags)),
        origin=origin.origin,
        by=origin.by,
        at=origin.at,
        node=origin.node,
        source=origin.source,
        note=origin.note,
        validated_at=origin.validated_at,
    )


def _values(session: Session, rows: list[ProfileRow]) -> tuple[Profile, ...]:
    ids = [row.id for row in rows]
    measured, checked = results.of_profiles(session, ids)
    trials = session.exec(select(ProfileTrialRow).where(col(ProfileTrialRow.profile_id).in_(ids)))
    behind: dict[str, tuple[int, ...]] = {}
    for link in trials:
        behind[link.profile_id] = tuple(sorted((*behind.get(link.profile_id, ()), link.trial_id)))
    needed = {row.fingerprint_id for row in rows}
    prints = session.exec(select(FingerprintRow).where(col(FingerprintRow.id).in_(needed)))
    by_id = {row.id: fingerprint_of(row) for row in prints}
    return tuple(
        Profile(
            by_id[row.fingerprint_id],
            form.plan_from(json.loads(row.plan)),
            measured[row.id],
            checked.get(row.id, ()),
            _provenance(row, behind.get(row.id, ())),
            row.model,
            row.id,
            form.flags_from(json.loads(row.flags)),
        )
        for row in rows
    )


def _provenance(row: ProfileRow, trials: tuple[int, ...]) -> Provenance:
    return Provenance(Origin(row.origin), row.by, row.at, row.node, row.source, row.note, trials, row.validated_at)

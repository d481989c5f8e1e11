"""The tables of the store, as SQLModel classes. Rows stay in this room: domain values go in and come out.

What is only read back as a whole (a plan, figures, readings) is JSON text; what is asked for has a column of its own.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, Text, UniqueConstraint
from sqlmodel import Field, SQLModel


# SQLite numbers rows by itself only in a column of exactly this type.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _number() -> Column[int]:
    return Column(_ID, primary_key=True, autoincrement=True)


def _reference(target: str, on_delete: str, *, nullable: bool = True) -> Column[int]:
    return Column(_ID, ForeignKey(target, ondelete=on_delete), nullable=nullable, index=True)


def _profile_reference(*, nullable: bool = True) -> Column[str]:
    return Column(Text, ForeignKey("profiles.id", ondelete="CASCADE"), nullable=nullable, index=True)


class NodeRow(SQLModel, table=True):
    """A machine that tunes, and who tunes on it now."""

    __tablename__ = "nodes"
    name: str = Field(primary_key=True, sa_type=Text)
    lease_owner: str = Field(default="", sa_type=Text)
    lease_expires: float = 0.0


class FingerprintRow(SQLModel, table=True):
    """What measurements depend on, found by the hash of its strict or of its loose readings."""

    __tablename__ = "fingerprints"
    __table_args__ = (UniqueConstraint("strict_key", "loose_key", name="uq_fingerprints_keys"),)
    id: int | None = Field(default=None, sa_column=_number())
    strict_key: str = Field(sa_type=Text)
    loose_key: str = Field(sa_type=Text, index=True)
    strict: str = Field(sa_type=Text)
    loose: str = Field(sa_type=Text)


class ProfileRow(SQLModel, table=True):
    """A plan worth keeping."""

    __tablename__ = "profiles"
    id: str = Field(primary_key=True, sa_type=Text)
    fingerprint_id: int = Field(sa_column=_reference("fingerprints.id", "RESTRICT", nullable=False))
    model: str = Field(sa_type=Text, index=True)
    plan: str = Field(sa_type=Text)
    flags: str = Field(sa_type=Text)
    origin: str = Field(sa_type=Text)
    by: str = Field(sa_type=Text)
    at: float
    node: str = Field(sa_type=Text)
    source: str = Field(sa_type=Text)
    note: str = Field(sa_type=Text)
    validated_at: float


class TrialRow(SQLModel, table=True):
    """One attempt of a search, in its state."""

    __tablename__ = "trials"
    id: int | None = Field(default=None, sa_column=_number())
    study: str = Field(sa_type=Text, index=True)
    kind: str = Field(sa_type=Text)
    node: str = Field(sa_type=Text)
    fingerprint_id: int | None = Field(default=None, sa_column=_reference("fingerprints.id", "RESTRICT"))
    plan: str = Field(sa_type=Text)
    settings: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text, index=True)
    reason: str = Field(default="", sa_type=Text)
    owner: str = Field(default="", sa_type=Text)
    created: float
    started: float = 0.0
    finished: float = 0.0


class ProfileTrialRow(SQLModel, table=True):
    """Which trials stand behind a profile."""

    __tablename__ = "profile_trials"
    profile_id: str = Field(sa_column=Column(Text, ForeignKey("profiles.id", ondelete="CASCADE"), primary_key=True))
    trial_id: int = Field(sa_column=Column(_ID, ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True))


class MeasurementRow(SQLModel, table=True):
    """What was measured of a trial or of a profile."""

    __tablename__ = "measurements"
    id: int | None = Field(default=None, sa_column=_number())
    trial_id: int | None = Field(default=None, sa_column=_reference("trials.id", "CASCADE"))
    profile_id: str | None = Field(default=None, sa_column=_profile_reference())
    workload: str = Field(sa_type=Text)
    figures: str = Field(sa_type=Text)
    repeats: int
    seconds: float
    tool: str = Field(sa_type=Text)
    at: float


class QualityRow(SQLModel, table=True):
    """One check of accuracy of a trial or of a profile."""

    __tablename__ = "quality_results"
    id: int | None = Field(default=None, sa_column=_number())
    trial_id: int | None = Field(default=None, sa_column=_reference("trials.id", "CASCADE"))
    profile_id: str | None = Field(default=None, sa_column=_profile_reference())
    check: str = Field(sa_column=Column("check_name", Text, nullable=False))
    low: float
    mid: float
    high: float
    limit: float = Field(sa_column_kwargs={"name": "limit_value"})
    passed: bool
    note: str = Field(sa_type=Text)
    at: float


class KernelConfigRow(SQLModel, table=True):
    """A timed launch of a kernel, by all that its time depends on."""

    __tablename__ = "kernel_configs"
    key: str = Field(primary_key=True, sa_type=Text)
    kernel: str = Field(sa_type=Text, index=True)
    bucket: str = Field(sa_type=Text)
    arch: str = Field(sa_type=Text)
    source_hash: str = Field(sa_type=Text)
    device: str = Field(sa_type=Text)
    driver: str = Field(sa_type=Text)
    triton: str = Field(sa_type=Text)
    runtime: str = Field(sa_type=Text)
    settings: str = Field(sa_type=Text)
    median_us: float
    default_us: float
    kept: bool
    at: float


class CalibrationRow(SQLModel, table=True):
    """Values that real prompts gave for a checkpoint."""

    __tablename__ = "calibrations"
    id: int | None = Field(default=None, sa_column=_number())
    kind: str = Field(sa_type=Text)
    model: str = Field(sa_type=Text, index=True)
    revision: str = Field(sa_type=Text)
    entries: str = Field(sa_type=Text)
    summary: str = Field(sa_type=Text)
    at: float


class EventRow(SQLModel, table=True):
    """What happened, in order; the oldest are dropped."""

    __tablename__ = "events"
    id: int | None = Field(default=None, sa_column=_number())
    at: float = Field(index=True)
    kind: str = Field(sa_type=Text)
    node: str = Field(sa_type=Text)
    message: str = Field(sa_type=Text)
    details: str = Field(sa_type=Text)

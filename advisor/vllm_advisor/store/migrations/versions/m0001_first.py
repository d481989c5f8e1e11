"""Schema 0001: everything that the first release keeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables, those that others point to first."""
    _machines()
    _trials()
    _profiles()
    _results()
    _tuned()
    op.create_table("events", _number(), _real("at"), *_texts("kind", "node", "message", "details"))
    op.create_index("ix_events_at", "events", ["at"])


def _machines() -> None:
    op.create_table(
        "nodes", sa.Column("name", sa.Text(), primary_key=True), *_texts("lease_owner"), _real("lease_expires")
    )
    keys = sa.UniqueConstraint("strict_key", "loose_key", name="uq_fingerprints_keys")
    op.create_table("fingerprints", _number(), *_texts("strict_key", "loose_key", "strict", "loose"), keys)
    op.create_index("ix_fingerprints_loose_key", "fingerprints", ["loose_key"])


def _trials() -> None:
    op.create_table(
        "trials",
        _number(),
        *_texts("study", "kind", "node"),
        _refers("fingerprint_id", "fingerprints.id", "RESTRICT"),
        *_texts("plan", "settings", "state", "reason", "owner"),
        *(_real(name) for name in ("created", "started", "finished")),
    )
    _indexes("trials", "fingerprint_id", "state", "study")


def _profiles() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Text(), primary_key=True),
        _refers("fingerprint_id", "fingerprints.id", "RESTRICT", nullable=False),
        *_texts("model", "plan", "flags", "origin", "by"),
        _real("at"),
        *_texts("node", "source", "note"),
        _real("validated_at"),
    )
    _indexes("profiles", "fingerprint_id", "model")
    op.create_table(
        "profile_trials",
        _refers("profile_id", "profiles.id", "CASCADE", sa.Text(), nullable=False),
        _refers("trial_id", "trials.id", "CASCADE", nullable=False),
        sa.PrimaryKeyConstraint("profile_id", "trial_id"),
    )


def _results() -> None:
    op.create_table(
        "measurements",
        _number(),
        *_owners(),
        *_texts("workload", "figures"),
        sa.Column("repeats", sa.Integer(), nullable=False),
        _real("seconds"),
        *_texts("tool"),
        _real("at"),
    )
    _indexes("measurements", "profile_id", "trial_id")
    op.create_table(
        "quality_results",
        _number(),
        *_owners(),
        *_texts("check_name"),
        *(_real(name) for name in ("low", "mid", "high", "limit_value")),
        sa.Column("passed", sa.Boolean(), nullable=False),
        *_texts("note"),
        _real("at"),
    )
    _indexes("quality_results", "profile_id", "trial_id")


def _tuned() -> None:
    op.create_table(
        "kernel_configs",
        sa.Column("key", sa.Text(), primary_key=True),
        *_texts("kernel", "bucket", "arch", "source_hash", "device", "driver", "triton", "runtime", "settings"),
        _real("median_us"),
        _real("default_us"),
        sa.Column("kept", sa.Boolean(), nullable=False),
        _real("at"),
    )
    _indexes("kernel_configs", "kernel")
    entries = _texts("kind", "model", "revision", "entries", "summary")
    op.create_table("calibrations", _number(), *entries, _real("at"))
    _indexes("calibrations", "model")


def _integer() -> sa.types.TypeEngine[int]:
    """SQLite numbers rows by itself only in a column of exactly INTEGER."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number() -> sa.Column[int]:
    return sa.Column("id", _integer(), primary_key=True, autoincrement=True)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Float(), nullable=False)


def _refers(
    name: str, target: str, on_delete: str, kind: sa.types.TypeEngine[str] | None = None, *, nullable: bool = True
) -> sa.Column[object]:
    return sa.Column(name, kind or _integer(), sa.ForeignKey(target, ondelete=on_delete), nullable=nullable)


def _owners() -> tuple[sa.Column[object], ...]:
    """A trial or a profile has it."""
    return _refers("trial_id", "trials.id", "CASCADE"), _refers("profile_id", "profiles.id", "CASCADE", sa.Text())


def _indexes(table: str, *columns: str) -> None:
    for column in columns:
        op.create_index(f"ix_{table}_{column}", table, [column])

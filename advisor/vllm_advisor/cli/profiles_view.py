"""How profiles look: a table, a page, a list of differences, a JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor import profiles_text
from vllm_advisor.cli import output
from vllm_advisor.profiles_text import differences
from vllm_advisor.store import form
from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Profile
    from vllm_advisor.profiles_text import Difference

__all__ = ["compared", "differences", "document", "listed", "plain", "shipped", "shown", "verdict"]


def document(profile: Profile) -> dict[str, Any]:
    """All that the store holds of it."""
    origin = profile.provenance
    return {
        "id": profile.id,
        "model": profile.model,
        "truth": profile.is_truth,
        "plan": form.plan_to(profile.plan),
        "flags": form.settings_to(profile.flags),
        "measurement": form.measurement_to(profile.measurement),
        "quality": [form.quality_to(check) for check in profile.quality],
        "fingerprint": {
            "strict": form.readings_to(profile.fingerprint.strict),
            "loose": form.readings_to(profile.fingerprint.loose),
        },
        "provenance": origin._asdict() | {"origin": str(origin.origin), "trials": list(origin.trials)},
    }


def listed(profiles: Sequence[Profile]) -> list[str]:
    """A row a profile."""
    return output.table([profiles_text.HEAD, *(profiles_text.row(profile) for profile in profiles)], indent="")


def shown(profile: Profile) -> list[str]:
    """Everything of one profile."""
    lines = [output.bold(f"{profile.id}  {profile.model}")]
    for title, rows in profiles_text.sections(profile):
        lines += _section(title, rows)
    return lines


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    lines = [line for name, value in rows for line in output.wrapped(f"  {name:<{width}}  ", value)]
    return ["", output.bold(title), *lines]


def compared(rows: Sequence[Difference]) -> list[str]:
    """The differences as a table."""
    return output.table([("part", "name", "old", "new"), *rows], indent="") if rows else ["no difference"]


def verdict(profile: Profile, why: str) -> list[str]:
    """Whether a profile is a truth here."""
    name = profile.id or profile.model
    return [f"{name} holds on this machine"] if not why else [f"{name} is well formed, and a prior only: {why}"]


def shipped(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A row a shipped profile, with where it comes from."""
    head = ("id", "what", "says", "source")
    return output.table([head, *(_shipped(row) for row in rows)], indent="")


def _shipped(row: dict[str, Any]) -> tuple[str, str, str, str]:
    source = row["provenance"]["source"]
    if row["kind"] == "seed":
        return row["id"], row["situation"], f"weights {row['weights']}, KV {row['kv_cache']}", source
    machine, speed = row["machine"], row["measurement"]["figures"]["output_tok_s"]
    return row["id"], f"{row['model']} on {machine['devices']}x{machine['gpu']}", f"{significant(speed)} tok/s", source


def plain(row: dict[str, Any]) -> list[str]:
    """One shipped profile, as its file has it."""
    from vllm_advisor.store import exchange

    return exchange.toml(row).rstrip("\n").split("\n")

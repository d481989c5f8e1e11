"""Shipped profiles: data only, each figure with where it comes from.

Each file in `data/` is one profile in schema 1:

    schema, id, kind      `reported`: a public measurement; `seed`: a row of the text this began from, with our verdict
    model, vllm           what ran; a version that is not a release is given as the source has it
    [machine]             gpu (a name of the catalog), devices
    [plan]                fields of `vllm_advisor.plan.Plan` that the source states
    [workload]            input_tokens, output_tokens, concurrency
    [measurement.figures] what the source printed: output_tok_s of the whole deployment, means of ttft_ms and tpot_ms
    [provenance]          source (an address), date, note

They are priors: nobody measured them on the machine that is asked about. `index.json` says which file speaks of which
model and device, so that a look costs no parsing.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 1
_FOLDER = Path(__file__).parent


def load_all() -> tuple[dict[str, Any], ...]:
    """Every shipped profile as plain data, by id."""
    return tuple(load(path.stem) for path in sorted((_FOLDER / "data").glob("*.toml")))


def load(name: str) -> dict[str, Any]:
    """One shipped profile. Raises KeyError for an id that is not shipped."""
    import tomllib  # noqa: PLC0415 - nothing is parsed where nothing matches

    path = _FOLDER / "data" / f"{name}.toml"
    if Path(name).name != name or not path.is_file():
        raise KeyError(name)
    return tomllib.loads(path.read_text(encoding="utf-8"))


def of(models: Iterable[str], gpu: str) -> tuple[dict[str, Any], ...]:
    """Public measurements of any of these models on this kind of device."""
    found = index()
    return tuple(load(name) for model in models for name in found.get(f"{model} {gpu}", ()))


@functools.cache
def index() -> dict[str, list[str]]:
    """`MODEL GPU` → ids."""
    read: dict[str, list[str]] = json.loads((_FOLDER / "index.json").read_text(encoding="utf-8"))
    return read


def index_of(profiles: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """What `index.json` must hold for these profiles."""
    rows: dict[str, list[str]] = {}
    for profile in profiles:
        if profile["kind"] == "reported":
            rows.setdefault(f"{profile['model']} {profile['machine']['gpu']}", []).append(profile["id"])
    return dict(sorted(rows.items()))

"""The models that we know without a network: by name, by spelling, and by what else of the same model is published.

Decision: one small index answers names, one small file a model answers everything else, so that a process which
needs one model reads two files. The data under `models/` is made by `benchmarks/build_catalog.py`; only numbers and
our own words are in it. Each entry keeps where its figures come from: `verbatim` (a published config.json),
`assembled` (published figures put together) or `derived-quant` (the base model's config and the usual recipe).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.catalog.models_codec import SCHEMA, decode
from vllm_advisor.errors import BadInput, UnsupportedModel


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec


FOLDER = Path(__file__).with_name("models")
INDEX = "index.json"
_REINSTALL = "reinstall vllm-advisor"


class Entry(NamedTuple):
    """One row of the index. `params` are all loaded parameters, drafts excluded; `base` names the base model."""

    file: str
    base: str
    scheme: str
    params: int
    provenance: str


def find(name: str) -> ModelSpec | None:
    """The catalog's model of that name, or None.

    Upper and lower case do not matter. A name without publisher is enough where one model alone has it:
    `gpt-oss-120b`. Raises UnsupportedModel for a model that we know and that vLLM cannot serve as a language model.
    """
    known = _match(name)
    if known is None:
        return None
    if known in refused():
        raise UnsupportedModel(f"{known} cannot be planned: {refused()[known]}", "choose a text generation model")
    return decode(_read(entries()[known].file))


def names() -> tuple[str, ...]:
    """All repositories that `find` answers, sorted."""
    return tuple(entries())


def siblings(spec: ModelSpec) -> tuple[ModelSpec, ...]:
    """The other checkpoints of the same base model, in the order of `spec.siblings`."""
    rows = entries()
    return tuple(decode(_read(rows[name].file)) for name, _ in spec.siblings if name in rows)


def adopt(spec: ModelSpec) -> ModelSpec:
    """`spec` with base model and siblings, when its name and shape say that the catalog knows its base model."""
    from vllm_advisor.catalog.models_groups import shape, stem  # noqa: PLC0415  regular expressions, for names unknown

    wanted = stem(spec.name)
    for base in sorted({row.base for row in entries().values()}):
        if stem(base) == wanted and shape(known := decode(_read(entries()[base].file))) == shape(spec):
            others = ((base, known.quantization.scheme), *known.siblings)
            return replace(spec, base_model=base, siblings=tuple(s for s in others if s[0] != spec.name))
    return spec


def nearest(name: str, n: int = 3) -> tuple[str, ...]:
    """The `n` names most like `name`, best first: those that contain it, then those spelled most like it."""
    wanted = _squeezed(name.rpartition("/")[2]) or _squeezed(name)
    tails = {known: _squeezed(known.rpartition("/")[2]) for known in entries()}
    containing = sorted((k for k, tail in tails.items() if wanted and wanted in tail), key=lambda k: (len(tails[k]), k))
    if len(containing) >= n:
        return tuple(containing[:n])
    rest = [k for k in tails if k not in containing]
    return tuple(containing + sorted(rest, key=_unlikeness(wanted, tails))[: n - len(containing)])


def entries() -> dict[str, Entry]:
    """The index: repository to row, sorted by name. Not to be changed by a caller."""
    return _index()[0]


def refused() -> dict[str, str]:
    """Repositories that we know and do not plan, with the reason."""
    return _index()[1]


def _match(name: str) -> str | None:
    if name in entries():
        return name
    by_name, by_tail = _spellings()
    wanted = name.strip().lower()
    return by_name.get(wanted) or by_tail.get(wanted) or None


@cache
def _spellings() -> tuple[dict[str, str], dict[str, str]]:
    """Lower-case full names, and lower-case names without publisher where one model alone has them."""
    known = (*entries(), *refused())
    by_tail: dict[str, str] = {}
    for name in known:
        tail = name.rpartition("/")[2].lower()
        by_tail[tail] = "" if tail in by_tail else name
    return {name.lower(): name for name in known}, by_tail


@cache
def _index() -> tuple[dict[str, Entry], dict[str, str]]:
    mapping = _read(INDEX)
    if mapping.get("schema") != SCHEMA:
        raise BadInput(f"the model index has schema {mapping.get('schema')!r}, this version reads {SCHEMA}", _REINSTALL)
    return {name: Entry(*row) for name, row in mapping["models"].items()}, mapping["refused"]


def _read(file: str) -> dict[str, Any]:
    try:
        mapping = json.loads((FOLDER / file).read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"the model catalog lacks {file} or it is damaged", _REINSTALL) from error
    if not isinstance(mapping, dict):
        raise BadInput(f"the model catalog's {file} is damaged", _REINSTALL)
    return mapping


def _squeezed(name: str) -> str:
    """Letters and digits alone, lower case: how people type names from memory."""
    return "".join(c for c in name.lower() if c.isalnum())


def _unlikeness(wanted: str, tails: dict[str, str]) -> Any:
    """A sort key: least first is most alike. `difflib` costs 1 ms to import, so only a miss pays for it."""
    from difflib import SequenceMatcher  # noqa: PLC0415

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)

    def key(known: str) -> tuple[float, str]:
        matcher.set_seq1(tails[known])
        return -matcher.ratio(), known

    return key

"""The recipe for a model on a machine: its own, else that of the same model in another format, else its family's.

What could not be read is counted and said; it never stops the rest.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.catalog.models_groups import stem
from vllm_advisor.recipes import files, guide
from vllm_advisor.recipes.hardware import Profile, profile
from vllm_advisor.recipes.synthesis import Rendered, render


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.recipes.files import Source
    from vllm_advisor.recipes.tree import Tree

OWN, FORMAT, FAMILY = "this model", "this model in another format", "another model of the family"
# Words that set members of one family apart: sizes, active sizes, dates, and what the model was trained for.
_MEMBER = re.compile(
    r"-(?:\d+(?:\.\d+)?[bmt](?:-a\d+(?:\.\d+)?b)?|a\d+(?:\.\d+)?b|\d+x\d+b(?:-v[\d.]+)?|e\d+b|instruct|it|base|chat|thinking"
    r"|reasoning|preview|\d{4})(?=-|$)"
)
_SIZE = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?)([bmt])(?=[-_.]|$)", re.IGNORECASE)
_FACTORS = {"m": 1e6, "b": 1e9, "t": 1e12}
# The checkpoint formats that a variant's `precision` may mean, by our scheme's first word.
_PRECISIONS = {"fp8": ("fp8",), "bf16": ("bf16", "fp16"), "mxfp4": ("mxfp4",), "nvfp4": ("nvfp4", "fp4")}


class Found(NamedTuple):
    """A recipe: where it stands, how near it is, and its command for the machine.

    `hardware`: the profile; `verified`: what the recipe says of it (`verified`, `unsupported` or ""). `minimum`: the
    least vLLM that it names. `guide`: the commands of its prose, `mentioned`: flags of it. `skipped`: broken files.
    """

    path: str
    model: str
    nearness: str
    hardware: Profile
    verified: str
    minimum: str
    command: Rendered
    guide: tuple[guide.Said, ...] = ()
    mentioned: tuple[tuple[str, str], ...] = ()
    skipped: tuple[str, ...] = ()


class Missing(NamedTuple):
    """No recipe: how many were looked at, and which could not be read."""

    looked_at: int
    skipped: tuple[str, ...]


def find(folder: Path, model: ModelSpec, node: Node, checkpoint: str | None = None) -> Found | Missing:
    """The nearest recipe for `model`; its variant is that of `checkpoint` (what our plan loads), where it has one.

    Raises BadInput where the folder is no clone of the recipes.
    """
    listed, skipped = files.sources(folder)
    broken = list(skipped)
    machine = profile(node, files.beside(folder, "taxonomy.yaml"))
    for nearness, source in _nearest(listed, model):
        try:
            tree = files.parse(source.text)
        except ValueError as error:
            broken.append(f"{source.path}: {error}")
            continue
        found = _found(source, tree, nearness, machine, folder, checkpoint or model.name, model)
        if found:
            return found._replace(skipped=tuple(broken))
    return Missing(len(listed), tuple(broken))


def _nearest(listed: tuple[Source, ...], model: ModelSpec) -> Iterator[tuple[str, Source]]:
    """Recipes worth reading, the nearest first."""
    recipes = [s for s in listed if s.is_recipe]
    name, base = model.name.lower(), model.base_model.lower()
    others = {base, *(sibling.lower() for sibling, _ in model.siblings)} - {"", name}
    own = [s for s in recipes if s.name.lower() == name]
    named = [s for s in recipes if name and _names(s, name)]
    same = [s for s in recipes if s.name.lower() in others or stem(s.name) == stem(name)]
    family = sorted((s for s in recipes if _family(s.name) == _family(name)), key=lambda s: _apart(s.name, model))
    configs = [s for s in listed if not s.is_recipe and _is_config_of(s, name)]
    yield from _once(
        (*((OWN, s) for s in (*own, *named)), *((FORMAT, s) for s in same), *((FAMILY, s) for s in family))
    )
    yield from ((FAMILY, s) for s in configs)


def _once(found: tuple[tuple[str, Source], ...]) -> Iterator[tuple[str, Source]]:
    seen: set[str] = set()
    for nearness, source in found:
        if source.path not in seen:
            seen.add(source.path)
            yield nearness, source


def _names(source: Source, name: str) -> bool:
    """Whether it gives the model as a `model_id`, its own or a variant's."""
    return re.search(rf"(?m)^\s*model_id:\s*[\"']?{re.escape(name)}[\"']?\s*(?:#.*)?$", source.text.lower()) is not None


def _family(name: str) -> str:
    tail = stem(name)
    while (shorter := _MEMBER.sub("", tail)) != tail:
        tail = shorter
    return tail


def _apart(name: str, model: ModelSpec) -> tuple[float, str]:
    size = _SIZE.search(name.rpartition("/")[2])
    if size is None or not model.params:
        return math.inf, name
    return abs(math.log(float(size[1]) * _FACTORS[size[2].lower()] / model.params)), name


def _is_config_of(source: Source, name: str) -> bool:
    """`OpenAI/GPT-OSS_Hopper.yaml` for openai/gpt-oss-120b: the older form, one file a family and generation."""
    family, _, generation = source.name.rpartition("/")[2].partition("_")
    squeezed = re.sub(r"[^a-z0-9]", "", family.lower())
    return bool(generation) and len(squeezed) > 3 and squeezed in re.sub(r"[^a-z0-9]", "", name)


def _found(  # noqa: PLR0917  each is one fact about the recipe
    source: Source, tree: Tree, nearness: str, machine: Profile, folder: Path, checkpoint: str, model: ModelSpec
) -> Found | None:
    """The recipe with its command; None for a file that is none."""
    if not source.is_recipe:
        return _config(source, tree, nearness, machine, model)
    if not tree.text("model", "model_id"):
        return None
    strategies = {s: files.beside(folder, f"strategies/{s}.yaml") for s in _STRATEGY_FILES}
    key = _variant(tree, checkpoint, model)
    prose = tree.text("guide")
    return Found(
        path=source.path,
        model=tree.text("variants", key, "model_id") or tree.text("model", "model_id"),
        nearness=nearness,
        hardware=machine,
        verified=tree.text("meta", "hardware", machine.id) if machine.id else "",
        minimum=tree.text("variants", key, "min_vllm_version") or tree.text("model", "min_vllm_version"),
        command=render(tree, key, machine, strategies),
        guide=guide.commands(prose),
        mentioned=guide.flags(prose),
    )


_STRATEGY_FILES = ("single_node_tp", "single_node_tep", "single_node_dep")


def _variant(tree: Tree, checkpoint: str, model: ModelSpec) -> str:
    """The variant that loads our checkpoint, else the one of its precision, else the default."""
    variants = tree.at("variants")
    own = tree.text("model", "model_id").lower()
    for key in variants.names():
        if (variants.text(key, "model_id").lower() or own) == checkpoint.lower():
            return key
    scheme = next((s for name, s in model.siblings if name == checkpoint), model.quantization.scheme)
    words = _PRECISIONS.get(scheme.split("_", maxsplit=1)[0], (scheme,))
    fitting = (key for key in variants.names() if variants.text(key, "precision").lower() in words)
    return next(fitting, "default")


def _config(source: Source, tree: Tree, nearness: str, machine: Profile, model: ModelSpec) -> Found | None:
    """A configuration file: its keys are flags without dashes; only of this generation."""
    generation = source.name.rpartition("_")[2].lower()
    if generation != machine.generation:
        return None
    words: list[str] = []
    for key in tree.names():
        value = tree.at(key).value
        words += [f"--{key}"] if value is True else [f"--{key}", tree.text(key)] if tree.text(key) else []
    command = Rendered(("vllm", "serve", model.name, *words), (), "", "")
    return Found(source.path, model.name, nearness, machine, "", "", command)

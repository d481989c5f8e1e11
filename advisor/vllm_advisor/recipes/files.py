"""The files of a clone, listed and read within bounds; nothing outside of the folder is opened.

A model's name never becomes a path: files are listed, and names compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_advisor.recipes.tree import Tree


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_FILES, _MOST_BYTES = 5000, 1 << 20
_CLONE = "git clone https://github.com/vllm-project/recipes, then --recipes with that folder"
_SUFFIXES = (".yaml", ".yml")
# models/<publisher>/<repository>.yaml now; before, publishers' folders stood at the top (`OpenAI/GPT-OSS_Hopper.yaml`).
_DEPTHS = ("models/*/*", "*/*")
_NO_MODELS = ("models", "strategies", "kv_store", "public", "src", "scripts")


class Source(NamedTuple):
    """One file: its path inside the clone, its text, and `publisher/repository` as its path spells it."""

    path: str
    text: str

    @property
    def name(self) -> str:
        """`Qwen/Qwen3-8B` of `models/Qwen/Qwen3-8B.yaml`."""
        return "/".join(self.path.split("/")[-2:]).rpartition(".")[0]

    @property
    def is_recipe(self) -> bool:
        """A recipe of today's format; else a configuration for `vllm serve --config`."""
        return self.path.startswith("models/")


def sources(folder: Path) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Every recipe of the clone, in the order of their paths, and a line for each that cannot be read.

    Raises BadInput where the folder is none, or holds no recipe.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder", _CLONE)
    root = folder.resolve()
    found: list[Source] = []
    skipped: list[str] = []
    for path in _listed(root):
        name = path.relative_to(root).as_posix()
        try:
            found.append(Source(name, _text(path, root)))
        except (OSError, ValueError) as error:
            skipped.append(f"{name}: {error}"[:200])
    if not found:
        raise BadInput(f"{folder} holds no recipe", _CLONE)
    return tuple(found), tuple(skipped)


def _listed(root: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    for depth in _DEPTHS:
        for path in sorted(p for suffix in _SUFFIXES for p in root.glob(depth + suffix)):
            folder = path.parent.name
            if path not in seen and len(seen) < _MOST_FILES and not folder.startswith(".") and folder not in _NO_MODELS:
                seen.add(path)
                yield path


def _text(path: Path, root: Path) -> str:
    real = path.resolve()
    if not real.is_relative_to(root):
        raise ValueError("it points outside of the folder")
    if not real.is_file():
        raise ValueError("it is no file")
    if real.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return real.read_bytes().decode("utf-8", "replace")


def parse(text: str) -> Tree:
    """The document. Raises ValueError with one line where it is none, or no mapping."""
    import yaml  # noqa: PLC0415  only who names a clone pays for it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = yaml.load(text, Loader=loader)  # noqa: S506  both are safe loaders
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:160]) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no mapping")  # noqa: TRY004  one kind of error for what is no recipe
    return Tree(value)


def beside(root: Path, name: str) -> Tree:
    """A file at the clone's top, or one level below, that recipes lean on (`taxonomy.yaml`); empty where it is none."""
    real = root.resolve()
    try:
        return parse(_text(real / name, real))
    except (OSError, ValueError):
        return Tree()

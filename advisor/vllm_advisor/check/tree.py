"""A YAML or JSON text as a tree that remembers its lines; anchors and merge keys resolved, size and depth bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_NODES = 200_000
_DEEPEST = 60


class Leaf(NamedTuple):
    """A scalar: its text as written, its value as YAML types it, its line; `block`: it was written with | or >."""

    text: str
    value: object
    line: int
    block: bool = False


class Branch(NamedTuple):
    """A mapping (`items`: key, value) or a list (keys are "")."""

    items: tuple[tuple[str, Tree], ...]
    line: int
    is_list: bool = False

    def get(self, key: str) -> Tree | None:
        """The value of a key, the last one if it stands twice; None: no such key."""
        found = [value for name, value in self.items if name == key]
        return found[-1] if found and not self.is_list else None

    def branch(self, *keys: str) -> Branch:
        """The mapping or list at the end of these keys, an empty one where there is none."""
        here: Tree | None = self
        for key in keys:
            here = here.get(key) if isinstance(here, Branch) else None
        return here if isinstance(here, Branch) else Branch((), self.line)

    def text(self, *keys: str) -> str:
        """The scalar at the end of these keys, "" where there is none."""
        here = self.branch(*keys[:-1]).get(keys[-1])
        return here.text if isinstance(here, Leaf) else ""

    def values(self) -> tuple[Tree, ...]:
        """What stands in it."""
        return tuple(value for _, value in self.items)


Tree = Leaf | Branch


def documents(text: str) -> Iterator[Tree]:
    """Every document of the text. Raises ValueError where it is no YAML, or larger than any manifest."""
    import yaml  # noqa: PLC0415

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while loader.check_node():
            yield _Grower(loader).grow(loader.get_node(), 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


class _Grower:
    """One document; counts what it makes, since an alias can stand for a whole tree many times over."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.made = 0

    def grow(self, node: Any, depth: int) -> Tree:
        self.made += 1
        if self.made > _MOST_NODES or depth > _DEEPEST:
            raise ValueError("no manifest is that large or that deep")
        line = node.start_mark.line + 1
        if node.id == "scalar":
            return Leaf(node.value, self._typed(node), line, node.style in ("|", ">"))
        if node.id == "sequence":
            return Branch(tuple(("", self.grow(n, depth + 1)) for n in node.value), line, is_list=True)
        return Branch(tuple(self._pairs(node, depth)), line)

    def _pairs(self, node: Any, depth: int) -> Iterator[tuple[str, Tree]]:
        """Merged mappings first: a key of the mapping itself wins over them."""
        merged = [value for key, value in node.value if key.tag.endswith(":merge")]
        for value in merged:
            grown = self.grow(value, depth + 1)
            parts = grown.values() if isinstance(grown, Branch) and grown.is_list else (grown,)
            yield from (pair for part in reversed(parts) if isinstance(part, Branch) for pair in part.items)
        for key, value in node.value:
            if not key.tag.endswith(":merge"):
                yield (key.value if key.id == "scalar" else ""), self.grow(value, depth + 1)

    def _typed(self, node: Any) -> object:
        """bool, int, float, None or str; a date or a broken number stays text."""
        tag = node.tag.rpartition(":")[2]
        if tag not in ("bool", "int", "float", "null"):
            return node.value
        try:
            return self.loader.construct_object(node)
        except (ValueError, KeyError, AttributeError):
            return node.value


def plain(tree: Tree) -> object:
    """The tree as Python values."""
    if isinstance(tree, Leaf):
        return tree.value
    if tree.is_list:
        return [plain(value) for value in tree.values()]
    return {key: plain(value) for key, value in tree.items}

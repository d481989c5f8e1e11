"""YAML, written by PyYAML: quoting is its business. Imported here and by nobody else of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml


if TYPE_CHECKING:
    from collections.abc import Mapping


def dump(value: Mapping[str, object]) -> str:
    """One document in the order of its keys; no anchors, no folded lines."""
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=10_000)


class _Plain(yaml.SafeDumper):
    """Lists indented below their key, as people write them; a value used twice is written twice."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  PyYAML's signature
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

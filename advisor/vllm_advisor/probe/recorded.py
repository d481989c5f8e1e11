"""A machine as a JSON file: what `advisor probe --save` writes and `--node` reads, on any other computer.

Decision: every field is written, also at its default, so that programs may rely on the keys, and every field is checked
when read (recorded_form.py). An unknown reading is `{"unknown": why}`; links are runs of equal ones, `{"kind", "gb_s",
"pairs": "0-1 0-2"}`. Nothing in the file names a person, a computer or one piece of hardware: such text is masked on
the way out.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput, one_line
from vllm_advisor.hardware import Unknown
from vllm_advisor.probe import recorded_form


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vllm_advisor.hardware import Gpu, Host, Link, Node


MAX_FILE_BYTES = 1 << 20  # a node of 256 devices with every link of its own takes a quarter of it
_HINT = "`advisor probe --save FILE` writes a file that can be read"
# Patterns stay text: whoever only reads a file does not pay for compiling them.
_PRIVATE = (
    (r"(?i)\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "(UUID)"),
    (r"(?i)\b(?:GPU|MIG)-(?=[a-f]*[0-9])[0-9a-f]{4}[0-9a-f/-]*(?![\w.])", "(UUID)"),  # cut short
    (r"(?<![\w.+-])[\w.+-]+@(?![\d.]+ ?[GM]Hz)[\w.-]*\w", "(user)"),  # and not `CPU@2.40GHz`
    (r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:'\",;]+|/root(?![\w-])", "~"),
)


def load(path: Path) -> Node:
    """The machine that a file describes, with origin `recorded`. Raises BadInput for a file that is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{path}: {why}", _HINT) from None
    if len(raw) > MAX_FILE_BYTES:
        raise BadInput(f"{path} is larger than 1 MiB: no recorded machine is", _HINT)
    try:
        return recorded_form.node(json.loads(raw.decode("utf-8-sig"), parse_constant=recorded_form.no_constant))
    except recorded_form.Broken as broken:
        raise BadInput(f"{path}: {broken}", _HINT) from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is not JSON", _HINT) from None


def save(node: Node, path: Path) -> None:
    """Write a machine; the file is there as a whole or not at all. Raises BadInput where it cannot be written."""
    text = json.dumps(to_mapping(node), indent=1, ensure_ascii=False) + "\n"
    try:
        _write(text.encode(), os.path.realpath(path) if _replaceable(path) else path, whole=_replaceable(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{path} cannot be written: {why}", "name a file in a folder that you may write") from None


def to_mapping(node: Node) -> dict[str, Any]:
    """The JSON form of a machine: strings, numbers, booleans, lists and objects only."""
    return {
        "schema": recorded_form.SCHEMA,
        "origin": _masked(node.origin),
        "gpus": [_plain(gpu, recorded_form.GPU) for gpu in node.gpus],
        "links": list(_runs(node.topology.links)),
        "host": _plain(node.host, recorded_form.HOST),
        "driver": _masked(node.driver),
        "runtime": _masked(node.runtime),
        "count": node.count,
        "network_gb_s": node.network_gb_s,
        "warnings": [_masked(text) for text in node.warnings],
    }


def from_mapping(mapping: object) -> Node:
    """The machine of a JSON form. Raises BadInput with what is wrong in it."""
    try:
        return recorded_form.node(mapping)
    except recorded_form.Broken as broken:
        raise BadInput(f"not a recorded machine: {broken}", _HINT) from None


def _write(data: bytes, path: str | Path, *, whole: bool) -> None:
    """Through a file beside it and a rename; a device or a pipe (/dev/stdout) is written as it is."""
    target = f"{path}.{os.getpid()}.tmp" if whole else path
    try:
        with open(target, "wb") as file:  # noqa: PTH123  # realpath gives text
            file.write(data)
            file.flush()
            if whole:
                os.fsync(file.fileno())
        if whole:
            os.replace(target, path)  # noqa: PTH105  # the same
    except BaseException:
        if whole and os.path.exists(target):  # noqa: PTH110  # the same
            os.unlink(target)  # noqa: PTH108  # the same
        raise


def _replaceable(path: Path) -> bool:
    return path.is_file() or not (path.exists() or path.is_symlink())


def _plain(value: Gpu | Host, fields: Iterable[str]) -> dict[str, Any]:
    return {name: _json(getattr(value, name)) for name in fields}


def _json(value: Any) -> Any:
    if isinstance(value, Unknown):
        return {"unknown": _masked(value.why)}
    if isinstance(value, str):
        return _masked(str(value))
    return [_masked(text) for text in value] if isinstance(value, tuple) else value


def _masked(text: str) -> str:
    """Text of one printable line without what points at a person or at one piece of hardware."""
    line = one_line(text)
    for pattern, stand_in in _PRIVATE:
        line = re.sub(pattern, stand_in, line)
    return line if len(line) <= recorded_form.MAX_TEXT else line[: recorded_form.MAX_TEXT - 1] + "…"


def _runs(links: Iterable[Link]) -> Iterable[dict[str, Any]]:
    from itertools import groupby  # noqa: PLC0415  # only where a node is written

    for (kind, gb_s), run in groupby(links, key=lambda link: (link.kind, link.gb_s)):
        yield {"kind": kind, "gb_s": gb_s, "pairs": " ".join(f"{link.a}-{link.b}" for link in run)}

"""Which tuned files vLLM brings along: what stands in its package needs no tuning of one's own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tuner.vllm_configs.names import ExpertsFile


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH = Path(__file__).with_name("shipped.txt")
FOLDER = "model_executor/layers/fused_moe/configs"  # in the package
_COMPARED = ((0, 24, 0), (0, 32, 0), (0, 33, 0))  # the releases whose packages were read


def is_shipped(file: ExpertsFile, release: tuple[int, int, int]) -> bool | None:
    """Whether the release's package holds the file; None where that lies between two packages that were compared."""
    since = _files().get(file)
    if since is None:
        return False
    if release >= _COMPARED[since]:
        return True
    return False if since and release <= _COMPARED[since - 1] else None


def devices() -> tuple[str, ...]:
    """Devices that have a file in the package, as they stand in names."""
    return tuple(sorted({file.device for file in _files()}))


@functools.cache
def _files() -> Mapping[ExpertsFile, int]:
    """Each file, and the number in `_COMPARED` of the first package that holds it."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    return dict(pair for line in lines if not line.startswith("#") for pair in _of_device(line))


def _of_device(line: str) -> Iterator[tuple[ExpertsFile, int]]:
    device, *files = line.split()
    for text in files:
        experts, width, *rest = text.lstrip("+").split(",")
        block = (int(rest[-2]), int(rest[-1])) if len(rest) > 1 else None
        dtype = rest[0] if len(rest) % 2 else None
        yield ExpertsFile(int(experts), int(width), device, dtype, block), text.count("+")

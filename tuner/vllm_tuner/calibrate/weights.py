"""A model's weights by name, read from safetensors when asked for: what is held is what the caller holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_advisor.errors import BadInput
from vllm_tuner import kernels


if TYPE_CHECKING:
    from pathlib import Path

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


class Weights:
    """Tensors of a model folder. Raises BadInput for files that are none, or names that are not there."""

    def __init__(self, folder: Path) -> None:
        self._files: Any = kernels.module("checkpoint_files")
        plan: Any = kernels.module("checkpoint_plan")
        try:
            self._where = {
                entry.name: (folder / shard, entry)
                for shard in plan.shard_names(folder)
                for entry in self._files.read_header(folder / shard)
            }
        except (ValueError, OSError) as error:
            raise BadInput(str(error), "calibration needs a local folder with *.safetensors") from error

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def names(self) -> tuple[str, ...]:
        """Every tensor, in the order of the files."""
        return tuple(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """From the header alone."""
        return tuple(self._entry(name)[1].shape)

    def get(self, name: str) -> torch.Tensor:
        """The tensor in float32, a fresh copy."""
        shape = self.shape(name)
        return self._read(name, 0, shape[0]).view(shape).float()

    def rows(self, name: str, first: int, count: int) -> torch.Tensor:
        """Some rows of a matrix, in float32: [count, columns]."""
        return self._read(name, first, count).view(count, -1).float()

    def _read(self, name: str, first: int, count: int) -> torch.Tensor:
        path, entry = self._entry(name)
        if entry.dtype not in _DTYPES:
            raise BadInput(f"{name} is {entry.dtype}; weights in {', '.join(_DTYPES)} are expected")
        row = entry.size // max(entry.shape[0], 1)
        with path.open("rb") as file:
            data = self._files.read_bytes(file, entry.begin + first * row, count * row)
        return torch.frombuffer(data, dtype=_DTYPES[entry.dtype])

    def maybe(self, name: str) -> torch.Tensor | None:
        """The tensor, or None where the family has none (biases, head norms)."""
        return self.get(name) if name in self._where else None

    def _entry(self, name: str) -> tuple[Path, Any]:
        if name not in self._where:
            raise BadInput(f"the checkpoint has no {name}: another layout than our forward pass knows")
        return self._where[name]

"""A library that is not there: every module of it can be imported, every name in it can be called, nothing is done.

For AMD's AITER, which vLLM's ROCm images have and its wheel does not. vLLM decides by its own switches and device
checks; what it then imports of AITER only has to exist for the model to be built. Where vLLM looks at a function's
parameters to tell an old AITER from a new one, it finds those of a released one (0.1.14, vllm/_aiter_ops.py:2850).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Sequence


_PARAMETERS = ("gate_mode",)


class Nothing:
    """Answers any call and has any attribute; false, and 0 as a number."""

    __signature__ = inspect.Signature([inspect.Parameter(p, inspect.Parameter.KEYWORD_ONLY) for p in _PARAMETERS])

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Nothing:
        return self

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    __index__ = __int__


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below one name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] != self.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def install(name: str) -> bool:
    """Feign the library unless it is there; whether it is feigned."""
    if importlib.util.find_spec(name) is not None:
        return False
    sys.meta_path.append(Finder(name))
    return True

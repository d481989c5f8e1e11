"""Tensors of no device: whatever is made on a GPU is made on torch's `meta` device instead."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Iterator


load: Any = importlib.import_module  # of an environment whose packages are not known here


@contextlib.contextmanager
def nowhere() -> Iterator[None]:
    """New tensors have shape and dtype but no memory; one asked for on the CPU is real."""
    torch = load("torch")
    with _mode(torch), torch.device("meta"):
        yield


def _mode(torch: Any) -> Any:
    overrides = load("torch.overrides")

    class Redirect(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined,unused-ignore]
        """`device="cuda"` means `meta`, as an argument and in `.to()` and `.cuda()`."""

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args = tuple(_meta(torch, value) for value in args)
            kwargs = {name: _meta(torch, value) for name, value in (kwargs or {}).items()}
            kwargs.pop("pin_memory", None)
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = torch.device("meta")
            if func is torch.Tensor.cuda:
                return args[0].to("meta")
            return func(*args, **kwargs)

    return Redirect()


def _meta(torch: Any, value: Any) -> Any:
    is_gpu = isinstance(value, str) and value.split(":")[0] in ("cuda", "hip")
    if is_gpu or (isinstance(value, torch.device) and value.type == "cuda"):
        return torch.device("meta")
    return value

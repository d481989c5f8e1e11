"""Which kernels vLLM takes for the layers of a model: the model is built by its own class, with tensors of no device.

vLLM chooses while a model is built: the attention backend in each attention layer, the kernel of a linear layer and
of the experts in their quantization method. So its own model class is built, with its own configuration, and each
layer is asked what it was given: no layer is described a second time here. Tensors are `meta`: shapes without memory.
The ranks of a parallel layout are one process: groups of torch's "fake" backend that never communicate.
Limits: rank 0 alone is built (the first pipeline stage); what a kernel finds out when weights are loaded or when it
first runs is not seen.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections import Counter
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Iterator


load: Any = importlib.import_module  # of an environment whose packages are not known here
_KERNELS = "vllm.model_executor.kernels.linear"
_METHODS = "vllm.model_executor.layers.quantization"
_TAILS = ("ScaledMMLinearKernel", "LinearKernel", "ScaledMMKernel", "Kernel")


def chosen(config: Any) -> dict[str, Any]:
    """`attention`, `linear` and `experts`: what each distinct kind of layer got, and how many layers that is."""
    model = built(config)
    return {
        "attention": _counted(_attention(config)),
        "linear": _counted(_linear(model)),
        "experts": _counted(_experts(model)),
    }


def _counted(rows: Iterator[tuple[tuple[str, Any], ...]]) -> list[dict[str, Any]]:
    return [{**dict(row), "layers": number} for row, number in Counter(rows).items()]


def built(config: Any) -> Any:
    """The model of this configuration, with tensors of no device."""
    torch = load("torch")
    loading = load("vllm.model_executor.model_loader.utils")
    vllm_config = load("vllm.config")
    meta = load("oracle_child.meta")
    with vllm_config.set_current_vllm_config(config, check_compile=False), _ranks(config), meta.nowhere():
        _workspace(torch)
        previous = torch.get_default_dtype()
        torch.set_default_dtype(config.model_config.dtype)
        try:
            return loading.initialize_model(vllm_config=config, model_config=config.model_config)
        finally:
            torch.set_default_dtype(previous)


def _workspace(torch: Any) -> None:
    """Since 0.12 layers ask for scratch memory of the worker's when they are made."""
    with contextlib.suppress(ImportError):
        workspace = load("vllm.v1.worker.workspace")
        workspace.init_workspace_manager(torch.device("meta"))


@contextlib.contextmanager
def _ranks(config: Any) -> Iterator[None]:
    """The process groups of the layout, all of them feigned, and gone afterwards."""
    dist = load("torch.distributed")
    fake = load("torch.testing._internal.distributed.fake_pg")
    state = load("vllm.distributed.parallel_state")
    parallel = config.parallel_config
    world = parallel.world_size * parallel.data_parallel_size
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=world)
    new_group, dist.new_group = dist.new_group, _feigned(dist.new_group)
    try:
        _without_queues()
        state._WORLD = state.init_world_group(list(range(world)), 0, "fake")  # noqa: SLF001
        state._NODE_COUNT = 1  # noqa: SLF001
        state.initialize_model_parallel(*_sizes(parallel), backend="fake")
        yield
    finally:
        dist.new_group = new_group
        with contextlib.suppress(Exception):
            state.destroy_model_parallel()
        state._WORLD = None  # noqa: SLF001
        dist.destroy_process_group()


def _sizes(parallel: Any) -> tuple[int, ...]:
    return (
        parallel.tensor_parallel_size,
        parallel.pipeline_parallel_size,
        getattr(parallel, "prefill_context_parallel_size", 1),
        getattr(parallel, "decode_context_parallel_size", 1),
    )


def _feigned(new_group: Any) -> Any:
    return lambda ranks=None, timeout=None, backend=None, **kwargs: new_group(ranks, backend="fake")  # noqa: ARG005


def _without_queues() -> None:
    """No shared memory, and no communicator that would look for other devices."""
    base = load("vllm.distributed.device_communicators.base_device_communicator").DeviceCommunicatorBase
    for name in ("ca_comm", "pynccl_comm", "qr_comm", "symm_mem_comm", "fi_ar_comm"):
        if not hasattr(base, name):
            setattr(base, name, None)
    queues = load("vllm.distributed.device_communicators.shm_broadcast")
    queues.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)


def _attention(config: Any) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Every layer that keeps something for a request."""
    for name, layer in config.compilation_config.static_forward_context.items():
        backend = _backend(layer)
        if backend is None:
            continue
        detail = (f"head {_number(getattr(layer, 'head_size', 0))}", f"cache {getattr(layer, 'kv_cache_dtype', '')}")
        sinks = ("sinks",) if getattr(layer, "has_sink", False) else ()
        yield (
            ("kind", _kind(layer, backend)),
            ("backend", backend),
            ("detail", " ".join((type(layer).__name__, *detail, *sinks))),
            ("tower", _in_tower(name)),
        )


def _kind(layer: Any, backend: str) -> str:
    """What the layer keeps, as a cache group says it; `sparse` where a backend picks the blocks to read."""
    name = type(layer).__name__
    kinds = (
        ("indexer", "Indexer" in name),
        ("compressed", backend.endswith("_DSV4")),
        ("mla", hasattr(layer, "kv_lora_rank") or "MLA" in name),
        ("sliding", "SWA" in name),
        ("state", not hasattr(layer, "num_kv_heads")),
        ("chunked", "Chunked" in name),
        ("sparse", backend.endswith("_SPARSE")),
        ("sliding", _number(getattr(layer, "sliding_window", 0)) > 0),
    )
    return next((kind for kind, holds in kinds if holds), "full")


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _backend(layer: Any) -> str | None:
    found = getattr(layer, "attn_backend", None)
    if found is None and hasattr(layer, "get_attn_backend"):
        with contextlib.suppress(Exception):
            found = layer.get_attn_backend()
    return _registered(found) if hasattr(found, "get_name") else None


def _registered(backend: Any) -> str:
    """The name by which `--attention-backend` knows a class; its own where it is not in the registry."""
    registry = load("vllm.v1.attention.backends.registry")
    path = f"{backend.__module__}.{backend.__qualname__}"
    return next((e.name for e in registry.AttentionBackendEnum if e.value == path), str(backend.get_name()))


def _linear(model: Any) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Every linear layer that is not an expert, by how it is stored and what multiplies it."""
    base = load("vllm.model_executor.layers.linear").LinearBase
    for name, module in model.named_modules():
        if not isinstance(module, base):
            continue
        method, scheme = getattr(module, "quant_method", None), getattr(module, "scheme", None)
        yield (
            ("method", type(method).__name__),
            ("backend", _kernel(method, scheme) or _own(method)),
            ("detail", " ".join((name.rpartition(".")[2], *((type(scheme).__name__,) if scheme else ())))),
            ("tower", _in_tower(name)),
        )


def _own(method: Any) -> str:
    """A quantization method that multiplies by itself is its own kernel: `AutoAWQ`."""
    kinds = [kind.__name__ for kind in type(method).__mro__]
    if any(name.startswith("Unquantized") for name in kinds):
        return ""
    return kinds[0].removesuffix("Method").removesuffix("Linear")


def _in_tower(name: str) -> bool:
    """Whether a module belongs to an encoder or to what joins it to the decoder."""
    return any(word in name for word in ("visual", "vision", "audio", "multi_modal", "mm_", "projector", "encoder"))


def _kernel(*holders: Any) -> str:
    """The first linear kernel that a method or scheme holds; "" where it has none (16-bit layers)."""
    for holder in holders:
        for value in vars(holder).values() if hasattr(holder, "__dict__") else ():
            if type(value).__module__.startswith(_KERNELS) and "Config" not in type(value).__name__:
                return _short(type(value).__name__)
            inner = _kernel(value) if type(value).__module__.startswith(_METHODS) else ""
            if inner:
                return inner
    return ""


def _short(name: str) -> str:
    return next((name.removesuffix(tail) for tail in _TAILS if name.endswith(tail)), name)


def _experts(model: Any) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Every layer of experts: the enum member that its method holds."""
    base = load("vllm.model_executor.layers.fused_moe.fused_moe_method_base").FusedMoEMethodBase
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if not isinstance(method, base):
            continue
        yield (
            ("method", type(method).__name__),
            ("backend", _member(method)),
            ("detail", getattr(getattr(method, "experts_cls", None), "__name__", "")),
            ("tower", _in_tower(name)),
        )


def _member(method: Any) -> str:
    for name, value in vars(method).items():
        if name.endswith("backend") and isinstance(value, enum.Enum):
            return value.name
    return ""

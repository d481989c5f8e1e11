"""Stand-ins of a device: what vLLM asks of the driver is answered from a description that was sent.

CUDA: a driver library without a driver (`stub`), and vLLM's own CUDA platform over a torch.cuda that answers from the
description. ROCm: the same wheel, with AMD's management library and torch's HIP version feigned, so that vLLM's own
ROCm platform is taken. CPU: nothing is feigned. Tensors are never made on the device: see `meta`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any, Self


load: Any = importlib.import_module  # of an environment whose packages are not known here


def install(given: dict[str, Any]) -> dict[str, Any]:
    """Put the stand-in in place, import vLLM, and say which vLLM and which platform answer.

    `given`: name, vendor (nvidia, amd, cpu), arch (sm90, gfx942), memory_bytes, compute_units, devices, aiter,
    connected.
    """
    _folder()
    if given["vendor"] != "cpu":
        {"nvidia": _cuda, "amd": _rocm}[given["vendor"]](given)
    platform = load("vllm.platforms").current_platform
    version = load("vllm").__version__
    return {"vllm": version, "platform": type(platform).__name__, "device": platform.get_device_name()}


def _folder() -> Path:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no vllm in this environment")
    return Path(spec.origin).parent


def _cuda(given: dict[str, Any]) -> None:
    _load_stub()
    _feign_torch(given)
    _mute_nvml()
    platforms = load("vllm.platforms")
    cuda = load("vllm.platforms.cuda")
    members = _members(given) | {"get_device_capability": classmethod(_capability(given))}
    platforms.current_platform = type("StandInCudaPlatform", (cuda.NonNvmlCudaPlatform,), members)()


def _load_stub() -> None:
    stub = load("oracle_child.stub")
    stub.load(stub.wanted(_folder()), Path.cwd())


def _mute_nvml() -> None:
    """A machine with a real device answers for the named one only."""
    for name in ("pynvml", "vllm.third_party.pynvml"):
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        module = load(name)
        if hasattr(module, "nvmlInit"):
            module.nvmlInit = _no_driver


def _no_driver(*_: Any) -> None:
    raise RuntimeError("the stand-in has no driver")


def _capability(given: dict[str, Any]) -> Any:
    interface = load("vllm.platforms.interface")
    major, minor = divmod(int(given["arch"][2:]), 10)
    return lambda _cls, _device=0, **__: interface.DeviceCapability(major=major, minor=minor)


def _rocm(given: dict[str, Any]) -> None:
    torch = load("torch")
    _load_stub()  # the wheel's extensions were built for CUDA; they hold the custom operations' names
    sys.modules["amdsmi"] = _amdsmi(given)
    torch.version.hip, torch.version.cuda = "7.2.0", None
    _feign_torch(given)
    platforms = load("vllm.platforms")
    rocm = load("vllm.platforms.rocm")
    platforms.current_platform = type("StandInRocmPlatform", (rocm.RocmPlatform,), _members(given))()
    if given.get("aiter"):
        load("oracle_child.feigned").install("aiter")
        load("vllm._aiter_ops").IS_AITER_FOUND = True
    # FlashAttention 4 is in this wheel; ROCm's has none (vllm_flash_attn/flash_attn_interface.py:72-86).
    load("vllm.v1.attention.backends.fa_utils").is_fa_version_supported = lambda _version: False


def _amdsmi(given: dict[str, Any]) -> types.ModuleType:
    """As much of AMD's library as `platforms/rocm.py` imports."""
    module = types.ModuleType("amdsmi")
    handles = list(range(given["devices"]))
    answers = {
        "amdsmi_init": None,
        "amdsmi_shut_down": None,
        "amdsmi_get_processor_handles": handles,
        "amdsmi_get_gpu_asic_info": {"target_graphics_version": given["arch"], "market_name": given["name"]},
        "amdsmi_get_gpu_memory_total": given["memory_bytes"],
        "amdsmi_get_gpu_device_uuid": "0",
        "amdsmi_topo_get_link_type": {"type": 2, "hops": 1},
        "amdsmi_topo_get_numa_node_number": 0,
    }
    for name, answer in answers.items():
        setattr(module, name, lambda *_, _answer=answer: _answer)
    module.__dict__.update(
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0),
        __spec__=importlib.util.spec_from_loader("amdsmi", loader=None),
    )
    return module


def _members(given: dict[str, Any]) -> dict[str, Any]:
    """Answers of a platform class that would ask the driver."""

    def is_fully_connected(_cls: type, _ids: list[int]) -> bool:
        return bool(given.get("connected", True))

    answers = {
        "get_device_name": given["name"],
        "get_device_total_memory": given["memory_bytes"],
        "device_count": given["devices"],
        "num_compute_units": given["compute_units"],
        "get_device_uuid": "0",
        "get_device_numa_node": None,
        "is_integrated_gpu": False,
        "get_device_communicator_cls": (
            "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
        ),
    }
    members: dict[str, Any] = {
        name: classmethod(lambda _cls, *_, _answer=answer, **__: _answer) for name, answer in answers.items()
    }
    return members | {"is_fully_connected": classmethod(is_fully_connected)}


def _feign_torch(given: dict[str, Any]) -> None:
    """torch.cuda as the description has it; streams and events do nothing."""
    torch = load("torch")
    properties = _properties(given)
    free = (given["memory_bytes"], given["memory_bytes"])
    answers = {
        "is_available": True,
        "is_initialized": True,
        "device_count": given["devices"],
        "current_device": 0,
        "get_device_name": given["name"],
        "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor),
        "mem_get_info": free,
        "set_device": None,
        "synchronize": None,
        "empty_cache": None,
        "init": None,
        "_lazy_init": None,
        "is_current_stream_capturing": False,
        "memory_allocated": 0,
        "memory_reserved": 0,
        "current_stream": Idle(),
        "default_stream": Idle(),
        "set_stream": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)
    torch.cuda.Stream = torch.cuda.Event = torch.Event = Idle
    for name in ("device_count", "current_device_index", "is_available", "synchronize", "empty_cache"):
        answer = answers.get(name.removesuffix("_index"))
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, lambda *_, _answer=answer, **__: _answer)
    torch._C._cuda_getDeviceCount = lambda: given["devices"]  # noqa: SLF001
    _feign_triton(given)


def _feign_triton(given: dict[str, Any]) -> None:
    """Some models ask Triton for its target while they are imported; its own driver would compile against CUDA."""
    if importlib.util.find_spec("triton") is None:
        return
    load("triton")
    compiler = load("triton.backends.compiler")
    is_cuda = given["vendor"] == "nvidia"
    arch = int(given["arch"][2:]) if is_cuda else given["arch"]
    target = compiler.GPUTarget("cuda" if is_cuda else "hip", arch, 32 if is_cuda else _properties(given).warp_size)

    class Driver(Idle):
        """Names the target; runs nothing."""

        def get_current_target(self) -> Any:
            return target

        def get_current_device(self) -> int:
            return 0

    sys.modules["triton.runtime.driver"].driver.set_active(Driver())


class Idle:
    """A stream or an event on which nothing ever runs."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _properties(given: dict[str, Any]) -> types.SimpleNamespace:
    """What torch.cuda.get_device_properties returns."""
    major, minor = _numbers(given["arch"])
    return types.SimpleNamespace(
        name=given["name"],
        major=major,
        minor=minor,
        total_memory=given["memory_bytes"],
        multi_processor_count=given["compute_units"],
        gcnArchName=given["arch"],
        is_integrated=0,
        warp_size=64 if given["arch"].startswith("gfx9") else 32,
        L2_cache_size=50 << 20,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=given.get("shared_memory_bytes", 99 << 10),
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        uuid="0",
    )


def _numbers(arch: str) -> tuple[int, int]:
    """(9, 0) for sm90, (9, 4) for gfx942, (12, 0) for gfx1201: as torch reports them."""
    if arch.startswith("sm"):
        return divmod(int(arch[2:]), 10)
    digits = arch.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16)


os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

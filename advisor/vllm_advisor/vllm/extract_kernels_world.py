"""The device that vLLM's selection is run on: its platform, variables, installed packages and compiled kernels.

What no Python source tells and vLLM's wheel or images fix is said here, each line with where it comes from.
"""

from __future__ import annotations

import ast
import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.vllm.archs import CPU, CPU_AMX, CPU_WIDE, CUDA, ROCM, capability
from vllm_advisor.vllm.extract_kernels_values import Instance, Native, Raised, Symbol, Unknown, UnreadableError


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.vllm.extract_kernels_builtins import Interpreter
    from vllm_advisor.vllm.extract_kernels_run import Program

# What vLLM's CUDA wheel requires or its ROCm image carries beside Python's own library. Anything else is absent:
# amd-quark, b12x, HPC, tokenspeed, conch, fbgemm, zentorch.
_BOTH = frozenset((
    "torch", "numpy", "triton", "typing_extensions", "packaging", "compressed_tensors", "pydantic", "transformers",
    "regex", "psutil", "cpuinfo", "requests", "tqdm", "huggingface_hub", "msgspec", "zmq", "cloudpickle", "yaml", "PIL",
    "einops", "safetensors", "tokenizers", "filelock", "cbor2", "blake3", "pybase64", "torchvision", "tilelang", "gguf",
    "scipy", "pandas",
)) | sys.stdlib_module_names  # fmt: skip
_PACKAGES = {
    "cuda": _BOTH | {"flashinfer", "humming", "pynvml", "cutlass", "triton_kernels", "deep_gemm", "flash_mla", "quack"},
    "rocm": _BOTH | {"aiter", "amdsmi", "triton_kernels", "flydsl"},
    "cpu": _BOTH,
}
# Compiled queries of vLLM's own kernels, by compute capability: asked of the 0.33.0 wheel for 80, 89, 90, 100, 103 and
# 120. FP4 on sm110 (Jetson Thor) was not asked, and 120's answer does not tell it.
_ASKED = CUDA - {"sm110"}
_COMPILED: dict[str, Callable[[int], bool]] = {
    "cutlass_scaled_mm_supports_fp8": lambda cap: cap >= 89,
    "cutlass_scaled_mm_supports_block_fp8": lambda cap: cap >= 90,
    "cutlass_scaled_mm_supports_fp4": lambda cap: cap >= 100,
    "cutlass_group_gemm_supported": lambda cap: cap in (90, 100, 103),
    "mxfp4_experts_quant_supported": lambda cap: cap in (100, 103),
    "cutlass_sparse_scaled_mm_supported": lambda cap: cap == 90,
}
# Names of these are functions and modules: they are there.
_CODE = frozenset(("flashinfer", "aiter", "triton_kernels", "deep_gemm", "humming", "triton"))


# Whether AITER's tuned list has a shape is in AITER's own files. It has those of many models: taken as yes, and noted.
ASSUMED = frozenset((
    "is_shuffled_per_token_w8a8_gemm_tuned", "is_per_token_w8a8_gemm_tuned", "is_triton_gemm_w8a8_tuned",
    "is_blockscale_bpreshuffle_tuned",
        "is_triton_blockscale_bpreshuffle_gemm_tuned",
))  # fmt: skip
# FlashInfer with its precompiled kernels, as the CUDA image has it; two that read its signatures.
_FLASHINFER = (
    "has_flashinfer", "has_flashinfer_cubin", "has_flashinfer_sm90_nope_mla", "has_flashinfer_situ_activation",
)  # fmt: skip


class World(NamedTuple):
    """One device. `aiter`: VLLM_ROCM_USE_AITER=1. `env`: further variables as the shell would hold them."""

    arch: str
    aiter: bool = False
    env: dict[str, str] = {}  # noqa: RUF012 - never written to
    config: Any = None

    @property
    def kind(self) -> str:
        """`cuda`, `rocm` or `cpu`."""
        return "cuda" if self.arch in CUDA else "rocm" if self.arch in ROCM else "cpu"

    def set(self) -> dict[str, str]:
        """The variables that are set."""
        return ({"VLLM_ROCM_USE_AITER": "1"} if self.aiter else {}) | self.env

    def installed(self, package: str) -> bool:
        """Whether the package, or the one that holds the module, is installed."""
        return package.partition(".")[0] in _PACKAGES[self.kind]

    def hooks(self) -> dict[str, Native]:
        """Functions of vLLM's, by name, that look into AITER's or FlashInfer's code: the image's have it."""
        here = Native(lambda *_: self.kind == "rocm")
        found = dict.fromkeys(("fused_moe_supports_gate_mode", "fused_moe_supports_quant_dtype_a"), here)
        present = Native(lambda *_: self.kind == "cuda")
        return found | dict.fromkeys(_FLASHINFER, present)

    # names of the program that this device fixes

    def fixed(self, program: Program, dotted: str) -> Any:
        """The value of a name of vLLM's that is not to be evaluated; None: evaluate it."""
        maker = _FIXED.get(dotted)
        if maker is not None:
            return maker(self, program)
        if dotted.startswith("platforms.rocm._GCN_ARCH"):
            return self.arch
        return None

    def platform(self, program: Program) -> Any:
        """`current_platform`: an object of vLLM's own class for the device, its capability put in."""
        name = {"cuda": "cuda.NonNvmlCudaPlatform", "rocm": "rocm.RocmPlatform", "cpu": "cpu.CpuPlatform"}[self.kind]
        cls = program.name(f"platforms.{name}")
        cls.attributes |= self._platform_facts(program)
        return Instance(cls, {})

    def _platform_facts(self, program: Program) -> dict[str, Any]:
        capable = self.capability(program)
        facts: dict[str, Any] = {
            "get_device_capability": Native(lambda *_, **__: capable),
            "get_device_name": Native(lambda *_, **__: self.arch),
            "is_zen_cpu": Native(lambda *_: False),
            "get_cuda_runtime_major": Native(lambda *_: 13),
        }
        if self.kind == "cpu":
            enum = program.name("platforms.interface.CpuArchEnum")
            which = program.members(enum)["ARM" if self.arch == "cpu-aarch64" else "X86"]
            facts["get_cpu_architecture"] = Native(lambda *_: which)
        return facts

    def capability(self, program: Program) -> Any:
        """The compute capability as vLLM's tuple: (9, 0) of sm90, (9, 4) of gfx942; None on a CPU."""
        if self.kind == "cpu":
            return None
        digits = str(capability(self.arch)) if self.kind == "cuda" else self.arch[3:-1]
        major = int(digits[:-1]) if self.kind == "cuda" else int(digits if len(digits) < 3 else digits[:2])
        minor = int(digits[-1])
        if self.kind == "rocm":
            major, minor = (int(digits[0]), int(digits[1])) if len(digits) == 2 else (int(digits[:2]), int(digits[2]))
        return program.call(program.name("platforms.interface.DeviceCapability"), [major, minor], {})

    def variable(self, program: Interpreter, name: str) -> Any:
        """A variable of `envs.py` as its own getter reads it here."""
        if name in ("is_set", "environment_variables"):
            held = self.set()
            return Native(lambda wanted: wanted in held) if name == "is_set" else Symbol("envs.environment_variables")
        space = program.space("envs")
        if space is None:
            raise UnreadableError(f"envs.{name}")
        key = f"environment_variables[{name}]"
        if key not in space.values:
            table = next((b.node for b in space.bound.get("environment_variables", ())), None)
            space.values[key] = self._read(program, space, table, name)
        return space.values[key]

    def _read(self, program: Interpreter, space: Any, table: Any, name: str) -> Any:
        rows = table.value if isinstance(table, ast.Assign | ast.AnnAssign) else None
        pairs = zip(rows.keys, rows.values, strict=True) if isinstance(rows, ast.Dict) else ()
        for key, getter in pairs:
            if isinstance(key, ast.Constant) and key.value == name:
                return program.call(program.value(getter, space.scope), [], {})
        return space.get(name)

    # names of other packages

    def symbol(self, path: str) -> Any:
        """What a name of another package is known to be; None: nothing."""
        if path.startswith("humming.config.GemmType.") and path.endswith(".value"):
            return path.split(".")[3]  # an enumeration of text
        return self.set() if path == "os.environ" else _SYMBOLS.get(path)

    def has(self, path: str) -> bool:
        """Whether another package's name exists: compiled kernels of the platform's own build, torch's dtypes."""
        return not path.startswith("torch.ops.zentorch") and (
            not path.startswith("torch.ops._rocm_C") or self.kind == "rocm"
        )

    def true(self, path: str) -> bool:
        """Whether another package's name counts as true; raises UnreadableError where we do not know."""
        if path.partition(".")[0] in _CODE:
            return True
        raise UnreadableError(path)

    def called(self, program: Program, target: Symbol, given: list[Any], named: dict[str, Any]) -> Any:
        """What calling another package's name gives; an Unknown where we do not know."""
        path, last = target.path, target.path.rpartition(".")[2]
        if last in _COMPILED and given:
            return self._compiled(path, last, given[0])
        if path.startswith("math.") and not named and all(isinstance(g, int | float) for g in given):
            return getattr(math, last)(*given)
        if path in _CALLS:
            return _CALLS[path](self, program, given, named)
        return Unknown(f"{path}({', '.join(map(str, given))})" if len(str(given)) < 80 else f"{path}(…)")

    def _compiled(self, path: str, name: str, asked: Any) -> Any:
        if self.kind != "cuda":
            return False
        if not isinstance(asked, int) or (self.arch not in _ASKED and "fp4" in name):
            return Unknown(f"{path}({asked})")
        return _COMPILED[name](asked)


def _getenv(world: World, _program: Program, given: list[Any], _named: dict[str, Any]) -> Any:
    return world.set().get(given[0], given[1] if len(given) > 1 else None)


def _find_spec(world: World, _program: Program, given: list[Any], _named: dict[str, Any]) -> Any:
    return object() if world.installed(given[0]) else None


def _import_module(world: World, _program: Program, given: list[Any], _named: dict[str, Any]) -> Any:
    if not world.installed(given[0]):
        raise Raised(ImportError(given[0]))
    return Symbol(given[0])


def _identity(_world: World, _program: Program, given: list[Any], _named: dict[str, Any]) -> Any:
    return given[-1]


def _wraps(_world: World, _program: Program, _given: list[Any], _named: dict[str, Any]) -> Any:
    return Native(lambda function: function)


def _resolver(program: Program) -> Callable[[str], Any]:
    return lambda path: program.name(path.removeprefix("vllm."))


_CALLS: dict[str, Callable[[World, Any, list[Any], dict[str, Any]], Any]] = {
    "os.getenv": _getenv,
    "importlib.util.find_spec": _find_spec,
    "importlib.import_module": _import_module,
    "functools.wraps": _wraps,
    "typing.cast": _identity,
    "torch.cpu._is_amx_tile_supported": lambda world, *_: world.arch in CPU_AMX,
    "torch.cpu._is_avx512_supported": lambda world, *_: world.arch in CPU_WIDE,
    "torch.cpu._is_avx2_supported": lambda world, *_: world.arch in CPU - {"cpu-aarch64"},
    "dataclasses.replace": lambda _w, _p, given, named: Instance(given[0].cls, given[0].attributes | named),
    "aiter.ops.flydsl.utils.is_flydsl_available": lambda *_: True,  # of the ROCm image
    "os.path.exists": lambda *_: True,  # a kernel file of AITER, in the ROCm image
    "torch.ops._C.cpu_has_amx_fp8": lambda *_: False,
    "torch.cuda.is_available": lambda world, *_: world.kind != "cpu",
    "re.match": lambda *_: None,
    "types.MappingProxyType": _identity,
}
_SYMBOLS: dict[str, Any] = {
    "typing.TYPE_CHECKING": False,
    "sys.platform": "linux",
    "typing.cast": Native(lambda _type, value: value),
    "torch.half": Symbol("torch.float16"),
}
_FIXED: dict[str, Callable[[World, Program], Any]] = {
    "platforms.current_platform": lambda world, program: world.platform(program),
    "platforms.__init__.current_platform": lambda world, program: world.platform(program),
    "logger.init_logger": lambda *_: Native(lambda *_: Symbol("logger")),
    "utils.import_utils._has_module": lambda world, _p: Native(world.installed),
    "utils.import_utils.has_deep_gemm": lambda world, _p: Native(lambda: world.kind == "cuda"),
    "utils.import_utils.has_triton_kernels": lambda world, _p: Native(lambda: world.kind != "cpu"),
    "utils.has_deep_gemm": lambda world, _p: Native(lambda: world.kind == "cuda"),
    "_aiter_ops.is_aiter_found": lambda world, _p: Native(lambda: world.kind == "rocm"),
    "_aiter_ops.IS_AITER_FOUND": lambda world, _p: world.kind == "rocm",
    "config.get_current_vllm_config": lambda _w, program: Native(lambda *_: program.configuration()),
    "config.get_current_vllm_config_or_none": lambda _w, program: Native(lambda *_: program.configuration()),
    "config.vllm.get_current_vllm_config": lambda _w, program: Native(lambda *_: program.configuration()),
    "config.vllm.get_current_vllm_config_or_none": lambda _w, program: Native(lambda *_: program.configuration()),
    "utils.import_utils.resolve_obj_by_qualname": lambda _w, program: Native(_resolver(program)),
    "triton_utils.HAS_TRITON": lambda world, _p: world.kind != "cpu",
    "triton_utils.importing.HAS_TRITON": lambda world, _p: world.kind != "cpu",
}

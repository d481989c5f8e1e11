"""The linear layers' kernels of one release: its own choice run for each device and weight scheme."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.extract_kernels_moe import Verdict
from vllm_advisor.vllm.extract_kernels_stub import configure
from vllm_advisor.vllm.extract_kernels_values import Class, Native, Raised, Symbol, UnreadableError


if TYPE_CHECKING:
    from vllm_advisor.vllm.extract_kernels_run import Program

_KERNELS = "model_executor.kernels.linear"
_KEYS = "model_executor.layers.quantization.utils.quant_utils"
_LONGEST = 4
# How a layer is stored → vLLM's function, and the words that it is asked with. Who asks: quantization/fp8.py:347,
# online/fp8.py:227 and :408, online/mxfp4.py:87, modelopt.py:2435, compressed_tensors/schemes/*_int8.py, *_mxfp4.py.
SCHEMES: dict[str, tuple[str, dict[str, str]]] = {
    "fp8_tensor": ("init_fp8_linear_kernel", {"weight": "kFp8StaticTensorSym", "activation": "kFp8StaticTensorSym"}),
    "fp8_channel": ("init_fp8_linear_kernel", {"weight": "kFp8StaticChannelSym", "activation": "kFp8DynamicTokenSym"}),
    "fp8_block": ("init_fp8_linear_kernel", {"weight": "kFp8Static128BlockSym", "activation": "kFp8Dynamic128Sym"}),
    # DeepGEMM is off for these on Blackwell (utils/deep_gemm.py)
    "fp8_block_qwen3_5": (
        "init_fp8_linear_kernel",
        {"weight": "kFp8Static128BlockSym", "activation": "kFp8Dynamic128Sym"},
    ),
    # compressed-tensors where FP8 activations are not supported (CompressedTensorsW8A16Fp8)
    "fp8_w8a16": (
        "init_wfp8_a16_linear_kernel",
        {"weight": "kFp8StaticChannelSym", "activation": "kFp8StaticTensorSym"},
    ),
    "mxfp8": ("init_mxfp8_linear_kernel", {}),
    "mxfp4": ("init_mxfp4_linear_kernel", {"activation": "kMxfp4Dynamic"}),
    "nvfp4": ("init_nvfp4_linear_kernel", {}),
    "nvfp4_w4a16": ("init_nvfp4_linear_kernel", {}),
    "int4_g32": ("choose_mp_linear_kernel", {}),
    "int4": ("choose_mp_linear_kernel", {}),
    "int8": ("init_int8_linear_kernel", {}),
}


class _Chosen(Exception):
    """The kernel class that is about to be made."""

    def __init__(self, cls: Class) -> None:
        super().__init__(cls.name)
        self.cls = cls


def short(name: str) -> str:
    """A kernel class's name without the common tail: `CutlassFP8` of CutlassFP8ScaledMMLinearKernel."""
    return re.sub(r"(ScaledMM)?(Linear)?Kernel$", "", name)


class Linear:
    """The choice of one release on one device."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.excluded: set[str] = set()
        program.hooks["can_implement"] = Native(self._gate)
        program.hooks["make"] = Native(self._made)

    def _gate(self, given: list[Any], _named: dict[str, Any]) -> Any:
        closed = given and isinstance(given[0], Class) and given[0].name in self.excluded
        return (False, "excluded") if closed else None

    @staticmethod
    def _made(made: Class) -> None:
        if made.name.endswith("Kernel"):
            raise _Chosen(made)

    def verdict(self, scheme: str) -> Verdict:
        """What is chosen, then what is chosen without that, and so on."""
        configure(self.program.world.config, model_type="qwen3_5_text" if scheme.endswith("qwen3_5") else "llama")
        self.program.forget()
        self.excluded = set()
        found: list[str] = []
        doubt: tuple[str, ...] = ()
        while len(found) < _LONGEST:
            before = len(self.program.unread)
            name = self._choose(scheme)
            doubt = doubt if found else tuple(dict.fromkeys(self.program.unread[before:]))
            if name is None or name in self.excluded:
                break
            found.append(name)
            self.excluded.add(name)
        return Verdict(tuple(short(n) for n in found), doubt)

    def _choose(self, scheme: str) -> str | None:
        try:
            chosen = self._call(scheme)
        except _Chosen as end:
            return end.cls.name
        except (Raised, KeyError):
            return None
        except UnreadableError as error:
            self.program.unread.append(str(error))
            return None
        return chosen.name if isinstance(chosen, Class) else None

    def _call(self, scheme: str) -> Any:
        name, keys = SCHEMES[scheme]
        function = self.program.name(f"{_KERNELS}.{name}")
        known = {a.arg for a in (*function.node.args.args, *function.node.args.kwonlyargs)}
        words = {k: v for k, v in self._words(scheme, keys).items() if k in known}
        return self.program.call(function, [], words)

    def _words(self, scheme: str, keys: dict[str, str]) -> dict[str, Any]:
        """A square layer of 4096 in BF16, weights by channel, activations quantized as the scheme says."""
        key = {k: self.program.name(f"{_KEYS}.{v}") for k, v in keys.items()}
        words: dict[str, Any] = {
            "input_dtype": Symbol("torch.bfloat16"),
            "out_dtype": Symbol("torch.bfloat16"),
            "weight_shape": (4096, 4096),
            "is_channelwise": True,
            "is_static_input_scheme": False,
            "input_symmetric": True,
            "module_name": "layer",
            "use_a16": scheme == "nvfp4_w4a16",
        }
        if scheme.startswith("int4"):
            words["config"] = self._packed(32 if scheme == "int4_g32" else 128)
        return words | {f"{name}_quant_key": value for name, value in key.items()}

    def _packed(self, group: int) -> Any:
        """Symmetric 4-bit weights in groups, as GPTQ and compressed-tensors hold them."""
        program = self.program
        cls = program.name(f"{_KERNELS}.mixed_precision.MPLinearKernel.MPLinearLayerConfig")
        types = program.name("scalar_type.scalar_types")
        given = {
            "full_weight_shape": (4096, 4096),
            "partition_weight_shape": (4096, 4096),
            "weight_type": program.attribute(types, "uint4b8"),
            "act_type": Symbol("torch.bfloat16"),
            "group_size": group,
            "zero_points": False,
            "has_g_idx": False,
            "out_type": Symbol("torch.bfloat16"),
        }
        known = {name for name, _ in program.fields(cls)}
        return program.make(cls, [], {k: v for k, v in given.items() if k in known})

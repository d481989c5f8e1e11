"""The experts' kernels of one release: its own selectors run for each device, activation and weight scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.vllm.extract_kernels_stub import configure
from vllm_advisor.vllm.extract_kernels_values import Class, Function, Instance, Native, Raised, Symbol, UnreadableError


if TYPE_CHECKING:
    from vllm_advisor.vllm.extract_kernels_run import Program

_ORACLE = "model_executor.layers.fused_moe.oracle"
_KEYS = "model_executor.layers.quantization.utils.quant_utils"
_LONGEST = 4


class Scheme(NamedTuple):
    """How experts are stored, as a selector is asked: its module and name, the names of its two keys, other words."""

    selector: str
    weight: str | None = None
    activation: str | None = None
    words: dict[str, Any] = {}  # noqa: RUF012 - never written to
    routing: str = "Renormalize"
    model_type: str = "llama"


# Who asks: fp8.py:475, modelopt.py:501 (static scales), online/fp8.py:505 (dynamic), :789 (per channel, with vLLM's own
# CUTLASS allowed), mxfp4.py:158, :578, online/int8.py:45, compressed_tensors_moe_wna16.py:102.
SCHEMES = {
    "bf16": Scheme("unquantized.select_unquantized_moe_backend"),
    "fp8_tensor": Scheme("fp8.select_fp8_moe_backend", "kFp8StaticTensorSym", "kFp8StaticTensorSym"),
    "fp8_tensor_dynamic": Scheme("fp8.select_fp8_moe_backend", "kFp8StaticTensorSym", "kFp8DynamicTensorSym"),
    "fp8_channel": Scheme(
        "fp8.select_fp8_moe_backend", "kFp8StaticChannelSym", "kFp8DynamicTokenSym", {"allow_vllm_cutlass": True}
    ),
    "fp8_block": Scheme("fp8.select_fp8_moe_backend", "kFp8Static128BlockSym", "kFp8Dynamic128Sym"),
    # DeepGEMM is off for these on Blackwell (utils/deep_gemm.py)
    "fp8_block_qwen3_5": Scheme(
        "fp8.select_fp8_moe_backend", "kFp8Static128BlockSym", "kFp8Dynamic128Sym", model_type="qwen3_5_moe_text"
    ),
    "mxfp4": Scheme("mxfp4.select_mxfp4_moe_backend"),
    "mxfp4_deepseek_v4": Scheme("mxfp4.select_deepseek_v4_mxfp4_moe_backend", routing="DeepseekV4"),
    "mxfp8": Scheme("mxfp8.select_mxfp8_moe_backend"),
    "nvfp4": Scheme("nvfp4.select_nvfp4_moe_backend", "kNvfp4Static", "kNvfp4Dynamic"),
    "nvfp4_w4a16": Scheme("nvfp4.select_nvfp4_moe_backend", "kNvfp4Static"),
    "int4": Scheme("int_wna16.select_wna16_moe_backend", "kInt4Static"),
    "int8": Scheme("int8.select_int8_moe_backend", "kInt8StaticChannelSym", "kInt8DynamicTokenSym"),
}
# A model's own shape matters little here: multiples of 256, 64 experts of which 8 are chosen, BF16.
_SHAPE = {
    "num_experts": 64, "num_local_experts": 64, "num_logical_experts": 64, "experts_per_token": 8, "hidden_dim": 4096,
    "hidden_dim_unpadded": 4096, "intermediate_size": 2048, "intermediate_size_per_partition": 2048,
    "intermediate_size_per_partition_unpadded": 2048, "max_num_tokens": 8192, "moe_backend": "auto", "has_bias": False,
    "is_lora_enabled": False,
}  # fmt: skip
# MiniMax-M3's, the one model of that activation (models/minimax_m3/nvidia/model.py:262).
_PACKED_SWIGLU = {"swiglu_alpha": 1.702, "swiglu_beta": 1.0, "swiglu_limit": 7.0}
_PARALLEL = {
    "tp_size": 1, "pcp_size": 1, "dp_size": 1, "ep_size": 1, "tp_rank": 0, "pcp_rank": 0, "dp_rank": 0, "ep_rank": 0,
    "sp_size": 1, "use_ep": False, "all2all_backend": "allgather_reducescatter", "enable_eplb": False,
}  # fmt: skip


class Verdict(NamedTuple):
    """Kernels in the order in which they would be taken, and what could not be told on the way to the first."""

    backends: tuple[str, ...]
    unread: tuple[str, ...]


class Experts:
    """The selectors of one release on one device."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.excluded: set[Any] = set()
        self.asked: Any = None
        program.hooks["is_supported_config"] = Native(self._gate)
        self.activations = program.members(program.name("model_executor.layers.fused_moe.activation.MoEActivation"))

    def _gate(self, given: list[Any], named: dict[str, Any]) -> Any:
        """Notes which gate is asked, and closes those that are excluded."""
        cls = given[0] if given else named.get("cls")
        keys = [*given[2:4], named.get("weight_key"), named.get("activation_key")]
        self.asked = (cls.name if isinstance(cls, Class) else str(cls), repr(keys[:2]))
        return (False, "excluded") if self.asked in self.excluded else None

    def verdict(self, scheme: Scheme, activation: str, *, expert_parallel: bool) -> Verdict:
        """What the selector takes, then what it takes without that, and so on."""
        try:
            call = self._call(scheme, activation, expert_parallel=expert_parallel)
        except KeyError:
            return Verdict((), ())
        configure(self.program.world.config, model_type=scheme.model_type)
        self.program.forget()
        self.program.steady = True
        self.excluded = set()
        found: list[str] = []
        doubt: tuple[str, ...] = ()
        while len(found) < _LONGEST:
            before = len(self.program.unread)
            name = self._select(*call)
            doubt = doubt if found else tuple(dict.fromkeys(self.program.unread[before:]))
            if name is None or self.asked in self.excluded:
                break
            found.append(name)
            self.excluded.add(self.asked)
        return Verdict(tuple(dict.fromkeys(found)), doubt)

    def _select(self, selector: Function, words: dict[str, Any]) -> str | None:
        try:
            chosen = self.program.call(selector, [], words)
        except Raised:
            return None
        except UnreadableError as error:
            self.program.unread.append(str(error))
            return None
        backend = chosen[0] if isinstance(chosen, tuple) else chosen
        return None if backend is None or backend.name == "NONE" else str(backend.name)

    def _call(self, scheme: Scheme, activation: str, *, expert_parallel: bool) -> tuple[Function, dict[str, Any]]:
        """The selector and its arguments; only those that this release's selector has."""
        selector = self.program.name(f"{_ORACLE}.{scheme.selector}")
        config = self._config(activation, scheme.routing, expert_parallel=expert_parallel)
        words = {
            "config": config,
            "moe_config": config,
            "weight_key": self._key(scheme.weight),
            "activation_key": self._key(scheme.activation),
            "quant_config": _checkpoint(),
            "may_have_zp": False,
            "may_have_bias": False,
            "allow_tile_padding": True,
        } | scheme.words
        known = {a.arg for a in (*selector.node.args.args, *selector.node.args.kwonlyargs)}
        return selector, {k: v for k, v in words.items() if k in known}

    def _key(self, name: str | None) -> Any:
        return self.program.name(f"{_KEYS}.{name}") if name else None

    def _config(self, activation: str, routing: str, *, expert_parallel: bool) -> Instance:
        program = self.program
        fused = "model_executor.layers.fused_moe.config"
        ep = {"ep_size": 8, "use_ep": True} if expert_parallel else {}
        parallel = _filled(program, f"{fused}.FusedMoEParallelConfig", _PARALLEL | ep)
        routes = program.members(program.name(f"{fused}.RoutingMethodType"))
        given = {
            "activation": self.activations[activation],
            "routing_method": routes.get(routing, routes["Renormalize"]),
            "moe_parallel_config": parallel,
            "in_dtype": Symbol("torch.bfloat16"),
            "router_logits_dtype": Symbol("torch.bfloat16"),
            "device": "cuda",
            "is_act_and_mul": not activation.endswith("NO_MUL"),
        }
        given |= _PACKED_SWIGLU if activation == "SWIGLUOAI_UNINTERLEAVE" else {}
        return _filled(program, f"{fused}.FusedMoEConfig", _SHAPE | given)


def _filled(program: Program, name: str, given: dict[str, Any]) -> Instance:
    """An object of the program's configuration class, without its own set-up; other fields at their default."""
    cls = program.name(name)
    known = {field for field, _ in program.fields(cls)}
    return Instance(cls, program.filled(cls, {k: v for k, v in given.items() if k in known}))


def _checkpoint() -> Instance:
    """Symmetric 4-bit weights in groups of 128, as compressed-tensors describes them."""
    strategy = Symbol("compressed_tensors.quantization.QuantizationStrategy.GROUP")
    facts = {"group_size": 128, "actorder": None, "strategy": strategy, "num_bits": 4, "symmetric": True}
    return Instance(Symbol("compressed_tensors.quantization.QuantizationArgs"), facts)

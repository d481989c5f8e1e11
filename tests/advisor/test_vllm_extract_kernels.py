"""The interpreter reads a kernel selection as Python would run it: small programs of our own, one idiom each."""

from __future__ import annotations

import ast
import textwrap

import pytest

from vllm_advisor.vllm.extract_kernels import read
from vllm_advisor.vllm.extract_kernels_attention import HEADS, Attention, Layer, heads_of
from vllm_advisor.vllm.extract_kernels_linear import Linear, short
from vllm_advisor.vllm.extract_kernels_moe import SCHEMES, Experts, Verdict
from vllm_advisor.vllm.extract_kernels_run import Program
from vllm_advisor.vllm.extract_kernels_stub import configuration
from vllm_advisor.vllm.extract_kernels_values import Raised, UnreadableError
from vllm_advisor.vllm.extract_kernels_world import World
from vllm_advisor.vllm.source import Package


BASE = {
    "platforms/__init__.py": "",
    "platforms/interface.py": """
        from typing import NamedTuple
        class DeviceCapability(NamedTuple):
            major: int
            minor: int
            def to_int(self):
                return self.major * 10 + self.minor
        class Platform:
            def is_cuda(self):
                return self.kind == "cuda"
            def is_rocm(self):
                return self.kind == "rocm"
            @classmethod
            def family(cls, tens):
                return cls.get_device_capability().to_int() // 10 == tens // 10
    """,
    "platforms/cuda.py": """
        from .interface import Platform
        class NonNvmlCudaPlatform(Platform):
            kind = "cuda"
    """,
    "platforms/rocm.py": """
        from .interface import Platform
        _GCN_ARCH = ask_the_driver()
        _ON_NEW = any(name in _GCN_ARCH for name in ["gfx95"])
        class RocmPlatform(Platform):
            kind = "rocm"
            @classmethod
            def supports_mx(cls):
                return _ON_NEW
    """,
    "envs.py": """
        import os
        environment_variables = {
            "VLLM_ROCM_USE_AITER": lambda: os.getenv("VLLM_ROCM_USE_AITER", "0").lower() in ("1", "true"),
            "VLLM_DISABLED_KERNELS": lambda: [],
        }
    """,
    "model_executor/layers/fused_moe/activation.py": """
        from enum import Enum
        class MoEActivation(Enum):
            SILU = "silu"
            SWIGLUOAI = "swigluoai"
    """,
    "model_executor/layers/fused_moe/config.py": """
        from dataclasses import dataclass
        from enum import IntEnum
        class RoutingMethodType(IntEnum):
            Renormalize = 1
            DeepseekV4 = 2
        @dataclass
        class FusedMoEParallelConfig:
            ep_size: int
            use_ep: bool
        @dataclass
        class FusedMoEConfig:
            activation: object
            routing_method: object
            moe_parallel_config: FusedMoEParallelConfig
            hidden_dim: int
    """,
    "model_executor/layers/fused_moe/kernels.py": """
        from vllm.platforms import current_platform
        class Experts:
            devices = (80,)
            def is_supported_config(cls, config, weight_key, activation_key):
                if not cls._here():
                    return False, "device"
                return cls._takes(weight_key, activation_key), None
            @classmethod
            def _here(cls):
                return current_platform.is_cuda() and any(current_platform.family(d) for d in cls.devices)
            @staticmethod
            def _takes(weight_key, activation_key):
                return True
        class Everywhere(Experts):
            @classmethod
            def _here(cls):
                return True
        class Datacenter(Experts):
            devices = (90, 100)
        class Probing(Experts):
            @classmethod
            def _here(cls):
                import torch
                return torch.cuda.some_new_question()
    """,
    "model_executor/layers/quantization/utils/quant_utils.py": """
        from dataclasses import dataclass
        import torch
        @dataclass(frozen=True)
        class QuantKey:
            dtype: torch.dtype
            static: bool = True
        kFp8StaticTensorSym = QuantKey(torch.float8)
        kFp8StaticChannelSym = QuantKey(torch.float8)
        kFp8DynamicTokenSym = QuantKey(torch.float8, False)
        kNvfp4Static = QuantKey(torch.uint8)
        kNvfp4Dynamic = QuantKey(torch.uint8, static=False)
        kInt4Static = QuantKey("int4")
        kInt8StaticChannelSym = kInt8DynamicTokenSym = QuantKey(torch.int8)
    """,
}
HEAD = """
    from enum import Enum
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.model_executor.layers.fused_moe import kernels
    class Backend(Enum):
        FAST = "fast"
        PLAIN = "plain"
        AITER = "aiter"
        NONE = "none"
    def classes(backend):
        known = {Backend.FAST: [kernels.Datacenter], Backend.AITER: [kernels.Datacenter]}
        return known.get(backend, [kernels.Everywhere])
"""
LOOP = """
        for backend in order:
            for cls in classes(backend):
                ok, _ = cls.is_supported_config(cls, config, None, None)
                if ok:
                    return backend, cls
        raise NotImplementedError("nothing")
"""
ORACLES = {
    "unquantized": """
    from ..config import RoutingMethodType
    def select_unquantized_moe_backend(moe_config):
        config = moe_config
        order = [Backend.FAST, Backend.PLAIN]
        def last(which):
            order.append(order.pop(order.index(which)))
        if current_platform.family(90):
            last(Backend.FAST)
    """,
    "fp8": """
    def select_fp8_moe_backend(config, weight_key, activation_key, allow_vllm_cutlass=False):
        order = [Backend.FAST, Backend.PLAIN]
        if envs.is_set("VLLM_ROCM_USE_AITER"):
            ok, why = classes(Backend.AITER)[0].is_supported_config(kernels.Datacenter, config, None, None)
            if not ok:
                raise ValueError(f"refused: {why}")
        if not allow_vllm_cutlass:
            order.remove(Backend.FAST)
    """,
    "mxfp4": """
    def select_mxfp4_moe_backend(config, activation_key=None):
        wanted = {Backend.PLAIN: "bf16", Backend.FAST: "mxfp8"}
        order = [b for b in (Backend.FAST, Backend.PLAIN) if wanted[b] == "bf16"]
    """,
    "mxfp8": """
    def first(backend, config):
        for cls in classes(backend):
            ok, _ = cls.is_supported_config(cls, config, None, None)
            if ok:
                return cls
        raise ValueError(backend.value)
    def select_mxfp8_moe_backend(config):
        for backend in (Backend.FAST, Backend.PLAIN):
            try:
                cls = first(backend, config)
            except ValueError:
                continue
            return backend, cls
        order = ()
    """,
    "nvfp4": """
    def select_nvfp4_moe_backend(config, weight_key, activation_key):
        fits = (weight_key, activation_key) in [(None, None)]
        clamped = {Backend.PLAIN}
        order = [b for b in Backend if b in clamped or fits]
    """,
    "int_wna16": """
    from compressed_tensors.quantization import QuantizationArgs
    def select_wna16_moe_backend(config, weight_key, quant_config, may_have_zp):
        order = [Backend.FAST] if isinstance(quant_config, QuantizationArgs) and quant_config.group_size == 128 else []
    """,
    "int8": """
    KEY = 8
    def select_int8_moe_backend(config, weight_key=KEY):
        order = [Backend.FAST] if (chosen := weight_key) == KEY else [Backend.PLAIN]
    """,
}
DEEPSEEK = """
    from ..config import RoutingMethodType
    def select_deepseek_v4_mxfp4_moe_backend(config):
        order = [Backend.PLAIN] if config.routing_method is RoutingMethodType.DeepseekV4 else [Backend.FAST]
"""


def _dedent(text):
    return textwrap.dedent(text)


@pytest.fixture
def package(tmp_path):
    """A package of our own with a selector per oracle."""
    files = {path: _dedent(text) for path, text in BASE.items()}
    loop = textwrap.indent(_dedent(LOOP), "    ")
    for name, text in ORACLES.items():
        files[f"model_executor/layers/fused_moe/oracle/{name}.py"] = _dedent(HEAD) + _dedent(text).rstrip() + loop
    files["model_executor/layers/fused_moe/oracle/mxfp4.py"] += _dedent(DEEPSEEK).rstrip() + loop
    return _written(tmp_path, files)


def _written(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return Package(root)


def _run(package, arch="sm90", **world):
    return Program(package, World(arch, config=configuration(), **world))


def _chosen(package, scheme, arch="sm90", act="SILU", *, ep=False, **world):
    return Experts(_run(package, arch, **world)).verdict(SCHEMES[scheme], act, expert_parallel=ep).backends


def test_the_stand_in_package_is_python(package):
    """What the tests below feed to the interpreter is a program that Python itself can parse."""
    for path in package.root.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("scheme", "arch", "expected"),
    [
        ("bf16", "sm90", ("PLAIN", "FAST")),  # moved to the back on this family by a nested function
        ("bf16", "sm103", ("FAST", "PLAIN")),
        ("bf16", "gfx942", ("PLAIN",)),
        ("fp8_channel", "sm100", ("FAST", "PLAIN")),  # its users allow the kernel that others remove
        ("fp8_tensor", "sm100", ("PLAIN",)),
        ("mxfp4", "sm100", ("PLAIN",)),
        ("mxfp4_deepseek_v4", "sm100", ("PLAIN",)),
        ("mxfp8", "sm100", ("FAST", "PLAIN")),
        ("mxfp8", "sm80", ("PLAIN",)),
        ("nvfp4", "sm100", ("PLAIN",)),
        ("int4", "sm90", ("FAST",)),
        ("int4", "sm120", ()),
        ("int8", "sm90", ("PLAIN",)),  # asked with a key of its own, not with the default
    ],
)
def test_a_selector_is_run_as_it_is_written(package, scheme, arch, expected):
    """Loops, closures, comprehensions, exceptions, defaults, enumerations and imports as Python has them."""
    assert expected == _chosen(package, scheme, arch)


def test_a_variable_that_is_set_takes_aiter_or_nothing(package):
    """The selector asks whether the variable is set, and raises where AITER does not run."""
    assert _chosen(package, "fp8_channel", "gfx942") == ("PLAIN",)
    assert _chosen(package, "fp8_channel", "gfx942", aiter=True) == ()


def test_a_gate_that_cannot_be_told_is_closed_and_named(package):
    """What only the driver answers is not guessed: the kernel counts as refused, and the question is noted."""
    program = _run(package)
    probing = program.name("model_executor.layers.fused_moe.kernels.Probing")
    gate = program.class_attribute(probing, "is_supported_config")
    assert program.call(gate, [probing, None, None, None], {}) == (False, "unread")
    assert program.unread == ["Probing: torch.cuda.some_new_question()"]


def _module(tmp_path, text):
    return _run(_written(tmp_path, {"m.py": _dedent(text)} | {k: _dedent(v) for k, v in BASE.items()}))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Child().greet()", "child of base"),
        ("Child.size", 3),
        ("Child().double", 6),
        ("[c.value for c in Colour]", [1, 2]),
        ("Colour(2).name", "BLUE"),
        ("Text.A == 'a'", True),
        ("Point(1, 2) < Point(1, 3)", True),
        ("Point(1, 2)[1] + Point(y=5, x=1).y", 7),
        ("Frozen(1) in {Frozen(1): 'yes'}", True),
        ("swallow()", "caught"),
        ("counted(3)", 6),
        ("wrapped(4)", 5),
        ("spread(1, *[2, 3], k=4)", (1, (2, 3), {"k": 4})),
        ("False and torch.unknown()", False),
        ("torch.unknown() and False", False),  # one false operand decides
        ("any(x for x in [torch.float16 == torch.float16])", True),
        ("torch.float16 in (torch.bfloat16, torch.float16)", True),
        ("getattr(Child, 'nothing', 'default')", "default"),
        ("hasattr(Child, 'nothing')", False),
        ("(lambda a, b=2: a * b)(4)", 8),
        ("WHERE", "linux"),
        ("CHOSEN", "handler"),
        ("f'{Child.size}-{torch.unknown()}'", "3-torch.unknown()"),
        ("Child.__module__ + __name__", "vllm.mvllm.m"),
    ],
)
def test_expressions_have_pythons_values(tmp_path, expression, expected):
    """Classes, properties, `super`, enumerations, named tuples, decorators, `try`, three-valued conditions."""
    program = _module(
        tmp_path,
        """
        import functools, sys, torch
        from dataclasses import dataclass
        from enum import Enum
        from typing import NamedTuple, TYPE_CHECKING
        if TYPE_CHECKING:
            WHERE = "never"
        elif sys.platform == "linux":
            WHERE = "linux"
        else:
            WHERE = "other"
        try:
            import not_installed_here
            CHOSEN = "body"
        except ImportError:
            CHOSEN = "handler"
        class Base:
            size = 3
            def greet(self):
                return "base"
            @property
            def double(self):
                return self.size * 2
        class Child(Base):
            def greet(self):
                return "child of " + super().greet()
        class Colour(Enum):
            RED = 1
            BLUE = 2
        class Text(str, Enum):
            A = "a"
        class Point(NamedTuple):
            x: int
            y: int = 0
        @dataclass(frozen=True)
        class Frozen:
            n: int
        def swallow():
            try:
                raise KeyError("x")
            except (ValueError, KeyError):
                return "caught"
        @functools.cache
        def counted(n):
            total = 0
            for i in range(10):
                if i > n:
                    break
                total += i
            return total
        def plus_one(f):
            def inner(*args):
                return f(*args) + 1
            return inner
        @plus_one
        def wrapped(n):
            return n
        def spread(first, *rest, **words):
            return first, rest, words
        """,
    )
    scope = program.space("m").scope
    assert expected == program.value(ast.parse(expression, mode="eval").body, scope)


def test_what_a_foreign_call_returns_is_not_compared(tmp_path):
    """Neither true nor false: the doubt is raised with its expression."""
    program = _module(tmp_path, "import torch\ndef ask():\n    return torch.unknown() == 3\n")
    with pytest.raises(UnreadableError, match=r"torch.unknown\(\)"):
        program.call(program.name("m.ask"), [], {})


def test_an_error_of_the_program_is_told_from_one_of_ours(tmp_path):
    """`raise` in the program that is read arrives as Raised."""
    program = _module(tmp_path, "def fail():\n    raise NotImplementedError('no')\n")
    with pytest.raises(Raised):
        program.call(program.name("m.fail"), [], {})


def test_endless_recursion_ends(tmp_path):
    """A function that calls itself for ever is unread, not a crash."""
    program = _module(tmp_path, "def loop(n):\n    return loop(n + 1)\n")
    with pytest.raises(UnreadableError, match="nested too deeply"):
        program.call(program.name("m.loop"), [0], {})


LINEAR = """
    from vllm import envs
    from vllm.platforms import current_platform
    class Config:
        pass
    class Kernel:
        def __init__(self, config):
            self.weights = config.impossible
        @classmethod
        def is_supported(cls, capability=None):
            return True, None
        @classmethod
        def can_implement(cls, config):
            return True, None
    class NewInt8ScaledMMLinearKernel(Kernel):
        @classmethod
        def is_supported(cls, capability=None):
            return current_platform.get_device_capability() >= (9, 0), None
    class OldInt8ScaledMMLinearKernel(Kernel):
        pass
    def init_int8_linear_kernel(is_channelwise, is_static_input_scheme, input_symmetric, module_name):
        for kernel in [NewInt8ScaledMMLinearKernel, OldInt8ScaledMMLinearKernel]:
            if kernel.is_supported()[0] and kernel.can_implement(None)[0]:
                return kernel(None)
        raise ValueError("none")
"""


@pytest.mark.parametrize(("arch", "expected"), [("sm100", ("NewInt8", "OldInt8")), ("sm89", ("OldInt8",))])
def test_a_linear_kernel_is_the_class_that_would_be_made(tmp_path, arch, expected):
    """The choice ends where the kernel is made; making it would need weights."""
    quant = {
        "model_executor/kernels/linear/__init__.py": _dedent(LINEAR),
        "model_executor/kernels/linear/mixed_precision/MPLinearKernel.py": "class MPLinearLayerConfig:\n    pass\n",
        "scalar_type.py": "class scalar_types:\n    uint4b8 = 'uint4b8'\n",
    }
    package = _written(tmp_path, {k: _dedent(v) for k, v in BASE.items()} | quant)
    assert Linear(_run(package, arch)).verdict("int8") == Verdict(expected, ())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CutlassFP8ScaledMMLinearKernel", "CutlassFP8"),
        ("DeepGemmFp8BlockScaledMMKernel", "DeepGemmFp8Block"),
        ("MarlinLinearKernel", "Marlin"),
        ("FlashInferFp8DeepGEMMDynamicBlockScaledKernel", "FlashInferFp8DeepGEMMDynamicBlockScaled"),
    ],
)
def test_kernel_names_lose_their_common_tail(name, expected):
    """The names that `backends.linear` gives."""
    assert expected == short(name)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], ""),
        (list(HEADS), "*"),
        ([64, 128, 256], "64,128,256"),
        ([h for h in HEADS if h >= 32], "32:0:1"),
        ([h for h in HEADS if h % 8 == 0 and h <= 256], "8:256:8"),
        ([h for h in HEADS if h % 8 == 0 and h <= 256] + [512], "8:256:8,512"),
        ([h for h in HEADS if 264 <= h <= 512], "264:512:8"),
    ],
)
def test_head_sizes_are_written_short(taken, expected):
    """A list where it is one, a rule where five sizes or more follow it."""
    assert expected == heads_of(taken, HEADS)


ATTENTION = {
    "v1/attention/selector.py": """
        from typing import NamedTuple
        class AttentionSelectorConfig(NamedTuple):
            head_size: int
            dtype: object
            kv_cache_dtype: str
            block_size: int
            use_mla: bool = False
            has_sink: bool = False
    """,
    "v1/attention/backend.py": """
        class Backend:
            heads = ()
            @classmethod
            def validate_configuration(cls, device_capability, head_size, kv_cache_dtype, has_sink, **_):
                reasons = []
                if cls.heads and head_size not in cls.heads:
                    reasons.append("head")
                if kv_cache_dtype.startswith("fp8") and device_capability < (8, 9):
                    reasons.append("dtype")
                if has_sink and not cls.sinks():
                    reasons.append("sinks")
                return reasons
            @classmethod
            def sinks(cls):
                return True
        class Picky(Backend):
            heads = (64, 128)
            @classmethod
            def sinks(cls):
                return False
    """,
    "platforms/cuda.py": """
        from enum import Enum
        from .interface import Platform
        from vllm.v1.attention.backend import Backend, Picky
        class Names(Enum):
            PICKY = "p"
            OTHER = "o"
        class NonNvmlCudaPlatform(Platform):
            @classmethod
            def get_valid_backends(cls, device_capability, attn_selector_config, num_heads=None):
                valid, invalid = [], {}
                for priority, (name, backend) in enumerate([(Names.PICKY, Picky), (Names.OTHER, Backend)]):
                    reasons = backend.validate_configuration(
                        device_capability=device_capability, **attn_selector_config._asdict())
                    if reasons:
                        invalid[name] = reasons
                    else:
                        valid.append((name, priority))
                return valid, invalid
    """,
}


@pytest.mark.parametrize(
    ("arch", "layer", "expected"),
    [
        ("sm90", Layer(False, False, 128, False, "auto"), ("PICKY", "OTHER")),
        ("sm90", Layer(False, False, 128, True, "auto"), ("OTHER",)),
        ("sm90", Layer(False, False, 96, False, "fp8"), ("OTHER",)),
        ("sm80", Layer(False, False, 128, False, "fp8"), ()),
    ],
)
def test_attention_is_what_the_platforms_own_search_finds(tmp_path, arch, layer, expected):
    """The platform's function is run with the layer's configuration, `**_asdict()` and all."""
    package = _written(tmp_path, {k: _dedent(v) for k, v in (BASE | ATTENTION).items()})
    assert expected == Attention(_run(package, arch)).backends(layer)


def test_a_package_without_a_selection_has_no_tables(tmp_path):
    """Another package, or a release whose layout we do not know: nothing is read, and the problem is named."""
    package = _written(tmp_path, {"__init__.py": ""})
    assert read(package) == {}
    assert any(problem.startswith("kernels: KeyError") for problem in package.problems)

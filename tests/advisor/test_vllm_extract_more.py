"""Quantization methods, tiers, log lines and metrics are read from source alone: a small package with vLLM's idioms."""

from __future__ import annotations

import json
import textwrap

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.vllm import extract_observability, extract_quantization
from vllm_advisor.vllm.extract import write
from vllm_advisor.vllm.source import Package


QUANTIZATION = """
def get_quantization_config(quantization):
    from .fp8 import Fp8Config
    from vllm.models.special import SpecialConfig
    chosen: type = SpecialConfig
    method_to_config: dict = {
        "fp8": Fp8Config,
        "special": chosen,
        "mixed": Missing,
        "online": Fp8Config,
    }
"""
FP8 = """
CAPABILITY = 80
class Base:
    @classmethod
    def get_min_capability(cls):
        return CAPABILITY
    @classmethod
    def get_supported_act_dtypes(cls):
        return [torch.bfloat16, torch.half]

class Fp8Config(Base):
    def get_quant_method(self, layer, prefix):
        if isinstance(layer, LinearBase):
            return Fp8LinearMethod(self)
        if isinstance(layer, RoutedExperts):
            return self._experts(layer)
        return None
    def _experts(self, layer):
        return Fp8OnlineMoEMethod(self)
"""
SPECIAL = """
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
class SpecialConfig(Fp8Config):
    @classmethod
    def get_min_capability(cls):
        return 90 if new else 80
    def get_quant_method(self, layer, prefix):
        if isinstance(layer, LinearBase):
            return UnquantizedLinearMethod()
        return None
"""
SHORTHANDS = """
_ONLINE_SHORTHANDS = {
    "fp8_fast": Args(linear=Spec(weight=W), moe=Spec(weight=W)),
    "int8_moe": Args(moe=Spec(weight=W)),
}
"""
ARGS = """
class EngineArgs:
    @classmethod
    def get_batch_defaults(cls, world_size):
        if device_memory >= 160 * GiB_bytes:
            default_max_num_batched_tokens = {UsageContext.LLM_CLASS: 4, UsageContext.OPENAI_API_SERVER: 3}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 2}
        else:
            default_max_num_batched_tokens = {UsageContext.OPENAI_API_SERVER: 1}
        if current_platform.is_cpu():
            if chip == "x":
                default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 7 * world_size}
"""
ROCM = """
class RocmPlatform(Platform):
    supported_quantization: list[str] = ["fp8", "awq"]
"""
LOGS = '''
logger.info_once(
    "GPU KV cache size: %s tokens",
    size,
)
logger.warning(f"Model loading took {gib} GiB" + " in all")
raise ValueError(
    "No available memory for the cache blocks. "
    "Try more."
)
def _make_log(x):
    return f"Using {x} Fp8 MoE backend"
def _unrelated():
    """KV cache size of a docstring."""
print("KV cache size: printed")
'''
METRICS = """
class Logger:
    def __init__(self):
        self.a = self._gauge_cls(name="vllm:running", documentation="x")
        self.b = prometheus_client.Counter("vllm:tokens", "y")
        self.c = "vllm:odd_name"
        self.d = "vllm::an_operator"
"""
FILES = {
    "model_executor/layers/quantization/__init__.py": QUANTIZATION,
    "model_executor/layers/quantization/fp8.py": FP8,
    "models/special.py": SPECIAL,
    "config/quantization.py": SHORTHANDS,
    "engine/arg_utils.py": ARGS,
    "platforms/rocm.py": ROCM,
    "v1/worker.py": LOGS,
    "v1/metrics/loggers.py": METRICS,
}


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return Package(tmp_path)


def test_a_method_is_read_through_its_bases_and_its_own_calls(package):
    """Capability from a base's constant, experts from a method that get_quant_method calls."""
    unread = []
    found = extract_quantization.read(package, unread)["fp8"]
    assert {
        "config": "Fp8Config", "min_capability": 80, "activations": ["bfloat16", "half"], "online": True,
        "checkpoint": True, "moe": True, "linear": True,
    } == found  # fmt: skip


def test_a_capability_that_is_computed_is_unread(package):
    """None, and the method is named; an unquantized linear method is none of its own."""
    unread = []
    found = extract_quantization.read(package, unread)["special"]
    assert (None, False, False) == (found["min_capability"], found["linear"], found["moe"])
    assert "quantization special: capability or activation types of SpecialConfig" in unread


def test_a_class_that_is_not_in_the_package_is_unread(package):
    """A name that leads nowhere gives None, not a guess."""
    unread = []
    found = extract_quantization.read(package, unread)["mixed"]
    assert (None, None, None) == (found["min_capability"], found["moe"], found["linear"])
    assert any(text.startswith("quantization mixed") for text in unread)


def test_shorthands_take_the_online_class_and_their_own_parts(package):
    """What a shorthand quantizes stands in its row."""
    found = extract_quantization.read(package, [])
    assert (["linear", "moe"], ["moe"]) == (found["fp8_fast"]["online_parts"], found["int8_moe"]["online_parts"])
    assert (True, False, False) == tuple(found["int8_moe"][k] for k in ("online", "checkpoint", "linear"))


def test_a_package_without_methods_says_so(tmp_path):
    """Nothing there is nothing read, with the reason."""
    unread = []
    assert ({}, []) == (
        extract_quantization.read(Package(tmp_path), unread),
        extract_quantization.batch_defaults(Package(tmp_path), unread),
    )
    assert ["quantization methods: no get_quantization_config", "defaults by card: no get_batch_defaults"] == unread


def test_tiers_in_source_order(package):
    """The test of each tier, its least memory, and expressions as text."""
    found = extract_quantization.batch_defaults(package, [])
    assert [
        {"when": "device_memory >= 160 * GiB_bytes", "memory_gib": 160,
         "tokens": {"llm": 4, "server": 3}, "seqs": {"server": 2}},
        {"when": "otherwise", "memory_gib": None, "tokens": {"server": 1}, "seqs": {}},
        {"when": "current_platform.is_cpu() and chip == 'x'", "memory_gib": None, "tokens": {},
         "seqs": {"server": "7 * world_size"}},
    ] == found  # fmt: skip


def test_a_platforms_list(package):
    """Only platforms that have one."""
    assert {"rocm": ["fp8", "awq"]} == extract_quantization.platforms(package)


def test_lines_by_event_level_and_format(package):
    """Joined strings, f-strings and sums; a docstring and a print are none."""
    assert [
        ["weights", "v1/worker.py", "warning", "Model loading took {gib} GiB in all"],
        ["kv_size", "v1/worker.py", "info", "GPU KV cache size: %s tokens"],
        ["moe", "v1/worker.py", "text", "Using {x} Fp8 MoE backend"],
        ["no_blocks", "v1/worker.py", "raise", "No available memory for the cache blocks. Try more."],
    ] == extract_observability.log_lines(package)


def test_metrics_by_kind(package):
    """The call tells the kind; an operator's name is no metric."""
    assert {"vllm:odd_name": "", "vllm:running": "gauge", "vllm:tokens": "counter"} == extract_observability.metrics(
        package
    )


def test_both_files_are_written(tmp_path):
    """What a recommendation reads, and the rest beside it."""
    surface = {"version": "9.9.9", "flags": {"--x": [1]}, "metrics": {"vllm:x": "gauge"}, "batch_defaults": [{"a": 1}]}
    first, second = write(surface, tmp_path)
    assert {"version": "9.9.9", "flags": {"--x": [1]}} == json.loads(first.read_text())
    assert {"version": "9.9.9", "metrics": {"vllm:x": "gauge"}, "batch_defaults": [{"a": 1}]} == json.loads(
        second.read_text()
    )
    assert tmp_path / "more" / "9.9.9.json" == second


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path):
    """One line, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput):
        write({"version": "1.0.0"}, tmp_path / "file")

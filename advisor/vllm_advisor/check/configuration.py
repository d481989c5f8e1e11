"""From a Reading to what it makes vLLM run: the plan with that version's defaults, and what a plan cannot express.

What the command says wrongly (a dtype that does not exist, more ranks than devices) is a finding of its own; here the
nearest configuration that can be judged is taken, so that one fault never hides the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check.loaded import loaded
from vllm_advisor.check.values import is_unresolved, mapping, number
from vllm_advisor.estimate.configuration import Configuration, plan_of
from vllm_advisor.facts import Case, Facts
from vllm_advisor.memory.budget import budget as budget_of
from vllm_advisor.memory.weights import ONLINE_BITS
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm import surface as surfaces
from vllm_advisor.vllm.schemes import ONLINE_SCHEMES
from vllm_advisor.workload import Workload


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.check.invocation import Reading, Setting
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface


class Asked(NamedTuple):
    """A command in typed values; None: not given, or not readable.

    `max_model_len` -1 is `auto`. `local_replicas` is --data-parallel-size-local. `devices` this machine must have, 0
    where that cannot be told (Ray, several nodes). `speculative` is its JSON. `env` with switches of AMD turned to 1.
    """

    reading: Reading
    surface: Surface
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    pcp: int = 1
    devices: int = 1
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    speculative: Mapping[str, object] | None = None
    env: tuple[tuple[str, str], ...] = ()

    def value(self, name: str) -> str | None:
        """The last value of an option, None where it is not given or only a run can tell."""
        value = self.reading.value(name)
        return None if is_unresolved(value) else value

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return bool(self.reading.on(name))

    def off(self, name: str) -> bool:
        """Whether a switch is turned off by its `--no-` form."""
        return self.reading.on(name) is False

    def variable(self, name: str) -> str:
        """A variable as given, "" where it is not."""
        return dict(self.reading.invocation.env).get(name, "")

    def set(self, name: str) -> bool:
        """Whether a switch among the variables is on, however it is read (`1`, `true`)."""
        return self.variable(name).strip().lower() in ("1", "true")

    def last(self, *names: str) -> Setting | None:
        """The last setting of any of these options, by full name."""
        found = [s for s in self.reading.settings if s.flag and s.flag.name in names]
        return found[-1] if found else None


_RAY = ("--distributed-executor-backend", "--data-parallel-backend")


def asked(reading: Reading, surface: Surface) -> Asked:
    """The command's values, typed; what is broken counts as not given."""

    def size(name: str) -> int:
        return _positive(reading, surface, f"--{name}-size") or 1

    given = Asked(
        reading,
        surface,
        tp=size("tensor-parallel"),
        pp=size("pipeline-parallel"),
        dp=size("data-parallel"),
        dcp=size("decode-context-parallel"),
        pcp=size("prefill-context-parallel"),
    )
    length = _number(reading, surface, "--max-model-len")
    return given._replace(
        devices=_devices(given),
        kv_cache_dtype=_cache_dtype(given),
        quantization=_lowered(given.value("--quantization")),
        max_model_len=length if length and -1 <= length <= _MOST else None,
        max_num_seqs=_positive(reading, surface, "--max-num-seqs"),
        max_num_batched_tokens=_positive(reading, surface, "--max-num-batched-tokens"),
        speculative=_speculative(given),
        env=tuple(sorted((n, _switched(n, v)) for n, v in reading.invocation.env if not is_unresolved(v))),
    )


# Options that say a key of --speculative-config (engine/arg_utils.py:2108; 0.24.0 :1706).
SPECULATIVE_OPTIONS = (
    ("--spec-method", "method"),
    ("--spec-model", "model"),
    ("--spec-tokens", "num_speculative_tokens"),
)


def _speculative(given: Asked) -> Mapping[str, object] | None:
    """The speculative configuration, keys as vLLM turns them; None where there is none."""
    found = {k.replace("-", "_"): v for k, v in mapping(given.reading, "--speculative-config").items()}
    found |= {key: value for name, key in SPECULATIVE_OPTIONS if (value := given.value(name)) is not None}
    return found or None


# Beyond, a number is a slip, and no arithmetic of ours is about it.
_MOST_RANKS, _MOST = 1 << 14, 1 << 50


def _number(reading: Reading, surface: Surface, name: str) -> int | None:
    text = reading.value(name)
    return None if text is None or is_unresolved(text) else number(name, text, surface)


def _positive(reading: Reading, surface: Surface, name: str) -> int | None:
    value = _number(reading, surface, name)
    most = _MOST_RANKS if name.endswith("-parallel-size") else _MOST
    return value if value and 0 < value <= most else None


def _lowered(text: str | None) -> str | None:
    return None if text is None or text.lower() == "none" else text.lower()


def _switched(name: str, value: str) -> str:
    """`true` is 1 to AMD's switches (envs.py), and to nothing that a plan looks at otherwise."""
    return "1" if name.startswith("VLLM_ROCM_USE_AITER") and value.strip().lower() in ("1", "true") else value


def _devices(given: Asked) -> int:
    """Ranks on this machine: of all replicas, or of the local ones."""
    if any(given.value(name) == "ray" for name in _RAY) or given.value("--data-parallel-address"):
        return 0
    local = _positive(given.reading, given.surface, "--data-parallel-size-local")
    if given.value("--data-parallel-rank"):
        local = 1
    nodes = _positive(given.reading, given.surface, "--nnodes") or 1
    return given.tp * given.pp * given.pcp * (local or given.dp) // (1 if local else nodes)


def _cache_dtype(given: Asked) -> str:
    """A dtype that some version has, else `auto`: that it does not exist is said elsewhere."""
    value = given.value("--kv-cache-dtype") or "auto"
    if value in given.surface.kv_cache_dtypes:
        return value
    return value if any(value in surfaces.load(v).kv_cache_dtypes for v in surfaces.versions()) else "auto"


class Judged(NamedTuple):
    """What can be judged. `stretched`: the command needs more devices than the node has, so `case` has more."""

    asked: Asked
    case: Case
    stretched: bool = False
    auto_length: bool = False


def judged(given: Asked, node: Node, model: ModelSpec) -> Judged:
    """The plan that the command comes to, with its memory. Raises UsageError where no context length is known."""
    ranks = given.tp * given.pp * given.dp
    roomy = node if ranks <= node.world else replace(node, gpus=(node.gpu,) * ranks, count=1)
    model = loaded(given, model)
    plan, _ = plan_of(model, roomy, given.surface, configuration(given, model))
    budget = budget_of(model, plan, roomy, given.surface)
    auto = given.max_model_len == -1
    if auto and not budget.fits and 0 < budget.max_context < plan.max_model_len:
        plan = replace(plan, max_model_len=budget.max_context, auto_max_model_len=True)
        budget = budget_of(model, plan, roomy, given.surface)
    # One request, so that no rule about a load has anything to say: the command does not tell the load.
    load = Workload(context=plan.max_model_len, input_tokens=0, output_tokens=0, concurrency=1)
    return Judged(given, Case(Facts(roomy, model, load, given.surface), plan, budget), roomy is not node, auto)


def configuration(given: Asked, model: ModelSpec) -> Configuration:
    """The command as the estimate takes it."""
    reading, surface = given.reading, given.surface
    return Configuration(
        tp=given.tp,
        pp=given.pp,
        dp=given.dp,
        dcp=given.dcp if given.pcp == 1 else 1,
        expert_parallel=given.on("--enable-expert-parallel"),
        quantization=online(given, model),
        kv_cache_dtype=given.kv_cache_dtype,
        max_model_len=given.max_model_len if given.max_model_len and given.max_model_len > 0 else None,
        gpu_memory_utilization=_share(given),
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens,
        enforce_eager=captures_nothing(given),
        block_size=_positive(reading, surface, "--block-size"),
        kv_cache_memory_bytes=_positive(reading, surface, "--kv-cache-memory-bytes"),
        env=given.env,
        adapted=given.on("--enable-lora") or given.speculative is not None,
        eplb=given.on("--enable-eplb"),
        attention_backend=_backend(given),
        moe_backend=_named(given.value("--moe-backend"), surface.moe_backends),
        performance_mode=_named(given.value("--performance-mode"), ("interactivity", "throughput")),
    )


def online(given: Asked, model: ModelSpec) -> str | None:
    """The --quantization that converts weights while loading; None where the checkpoint's own method stands."""
    flag = given.quantization
    if flag == plugin.NAME:
        return None if model.quantization.method == flag else flag
    if flag is None or flag not in ONLINE_BITS or flag not in ONLINE_SCHEMES:
        return None
    converts = flag in (*given.surface.online_quantizations, "fp8")
    return flag if converts and model.quantization.method == "none" else None


def captures_nothing(given: Asked) -> bool:
    """Whether no CUDA graph is captured: eager, or a compilation that says so."""
    if given.on("--enforce-eager"):
        return True
    mode = mapping(given.reading, "--compilation-config").get("cudagraph_mode")
    return str(mode).upper() == "NONE" if mode is not None else _level(given) == "0"


def _level(given: Asked) -> str:
    setting = given.last("--optimization-level")
    return setting.value or "" if setting else ""


def _share(given: Asked) -> float | None:
    try:
        share = float(given.value("--gpu-memory-utilization") or "nan")
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _backend(given: Asked) -> str | None:
    written = given.value("--attention-backend") or mapping(given.reading, "--attention-config").get("backend")
    name = str(written).upper() if written else "AUTO"
    return name if name in given.surface.attention_backends else None


def _named(value: str | None, names: tuple[str, ...]) -> str | None:
    return value if value in names and value != "auto" else None

"""What each line of a start-up log says: one row a form, with the releases whose source prints it so.

A row is (a literal that the line holds, the expression that reads it, what is done with its groups). The literals also
make the filter that most lines of a log never pass. Sources: v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py,
v1/worker/gpu/model_runner.py, v1/core/kv_cache_utils.py, v1/core/kv_cache_planning.py, v1/engine/core.py,
entrypoints/…, platforms/cuda.py, platforms/rocm.py, model_executor/layers/fused_moe/oracle,
model_executor/kernels/linear of 0.24.0 to 0.33.0, and the same of 0.5.0 to 0.20.0 where the form differs.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import logs_args


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm_advisor.vllm.logs_args import Value
    from vllm_advisor.vllm.logs_lines import Line


class Rank(NamedTuple):
    """What one worker printed. Sizes in GiB as printed, times in seconds; None: it did not say."""

    name: str
    weights_gib: float | None = None
    load_s: float | None = None
    kv_gib: float | None = None
    graphs_gib: float | None = None
    graphs_estimated_gib: float | None = None


class Pool(NamedTuple):
    """The KV cache of one engine as printed, concurrency at `length`. `device`: GPU, CPU, XPU, `GPU + host`."""

    engine: str
    device: str
    tokens: int
    length: int | None = None
    concurrency: float | None = None


class Backend(NamedTuple):
    """A kernel choice: the part of the model as the log calls it, what was taken, and from which."""

    part: str
    name: str
    candidates: tuple[str, ...] = ()


class Memory(NamedTuple):
    """The summary after start-up, GiB of one device. `consumed`: weights and non-torch together (0.33)."""

    free: float
    total: float
    utilization: float
    requested: float
    weights: float | None = None
    consumed: float | None = None
    activation: float | None = None
    non_torch: float | None = None
    graphs: float | None = None
    kv: float | None = None


class Facts:
    """One start, filled line by line."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.model: str | None = None
        self.architecture: str | None = None
        self.args: dict[str, Value] = {}
        self.args_are_all = False
        self.config: dict[str, Value] = {}
        self.ranks: dict[str, Rank] = {}
        self.pools: dict[str, Pool] = {}
        self.backends: dict[tuple[str, str], Backend] = {}
        self.blocks: int | None = None
        self.world_size: int | None = None
        self.compile_s: float | None = None
        self.init_s: float | None = None
        self.memory: Memory | None = None
        self.auto_fit: tuple[int, int] | None = None
        self.max_model_len: int | None = None
        self.max_num_batched_tokens: int | None = None
        self.block_size: int | None = None
        self.page_padding: float | None = None
        self.unit_scales = False
        self.moe_configs: dict[str, bool] = {}
        self.address: str | None = None
        self.ready = False
        self.ready_line = 0
        self.went_on = False
        self.given_kv_gib: float | None = None

    def rank(self, line: Line, **figures: float) -> None:
        """Figures of the rank that wrote the line; one that prints a figure again (a draft model) keeps the first."""
        name = line.process or "rank 0"
        known = self.ranks.get(name) or Rank(name)
        new = {field: value for field, value in figures.items() if getattr(known, field) is None}
        self.ranks[name] = Rank(**(known._asdict() | new))
        self.went_on = True


def number(text: str) -> float:
    """`131,072`, `-2.51`."""
    return float(text.replace(",", ""))


def _version(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001 - all readers are called alike
    facts.version = found[1].strip().rstrip(",")
    if found.re.groups > 1 and found[2]:
        facts.model = facts.model or found[2].strip()


def _banner_model(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.model = found[1].strip()


def _engine(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.version = facts.version or found[1]
    facts.config = logs_args.namespace(found[2])
    if isinstance(facts.config.get("model"), str):
        facts.model = facts.model or str(facts.config["model"])


def _args(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.args = logs_args.mapping(found[1])
    named = facts.args.get("model") or facts.args.get("model_tag")
    facts.model = facts.model or (str(named) if named else None)


def _all_args(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.args, facts.args_are_all = logs_args.namespace(found[1]), True
    named = facts.args.get("model_tag") or facts.args.get("model")
    facts.model = facts.model or (str(named) if named else None)


def _weights(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, weights_gib=number(found[1]))


def _load(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, load_s=number(found[1]))


def _kv_memory(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, kv_gib=number(found[1]))


def _given_kv(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.given_kv_gib = number(found[1])
    facts.rank(line, kv_gib=number(found[1]))


def _pool(facts: Facts, line: Line, found: re.Match[str]) -> None:
    name = line.process or "engine"
    length = int(number(found[3])) if found[3] else None
    concurrency = number(found[4]) if found[4] else None
    facts.pools[name] = Pool(name, found[1], int(number(found[2])), length, concurrency)
    facts.went_on = True


def _concurrency(facts: Facts, line: Line, found: re.Match[str]) -> None:
    name = line.process or "engine"
    length, times = int(number(found[1])), number(found[2])
    known = facts.pools.get(name)
    if known is None:  # V0 prints blocks, not tokens
        known = Pool(name, "GPU", int(times * length))
    facts.pools[name] = known._replace(length=length, concurrency=times)


def _blocks(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.blocks = int(number(found[1]))
    facts.went_on = True


def _graphs(facts: Facts, line: Line, found: re.Match[str]) -> None:
    if found[1]:
        facts.rank(line, graphs_gib=number(found[1]))


def _graphs_estimated(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, graphs_estimated_gib=number(found[1]))


def _graph_pool(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, graphs_gib=number(found[1]), graphs_estimated_gib=number(found[2]))


_QUOTED = re.compile(r"[A-Za-z][\w.\-]*")


def _choose(facts: Facts, part: str, name: str, candidates: str = "") -> None:
    plain = name.strip().strip("'\"").rpartition("AttentionBackendEnum.")[2]
    taken = Backend(part, plain, tuple(_QUOTED.findall(candidates)))
    facts.backends.setdefault((part, plain), taken)


def _attention(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    _choose(facts, "attention", found[1], found[2] or "")


def _attention_old(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    if not any(word in found[1] for word in ("MoE", "MXFP", "allreduce", "all2all", "Transformers")):
        _choose(facts, "attention", found[1])


def _vision(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    _choose(facts, "vision attention", found[1])


def _prefill(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    _choose(facts, "MLA prefill", found[1])


def _moe(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    _choose(facts, f"MoE ({found[2]})" if found[2] else "MoE", found[1], found[3] or "")


def _linear(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    _choose(facts, f"linear ({found[2].removesuffix(' linear').removesuffix(' GEMM')})", found[1])


def _compile(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.compile_s = max(facts.compile_s or 0.0, number(found[1]))


def _init(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.init_s = max(facts.init_s or 0.0, number(found[1]))
    facts.went_on = True


def _block_size(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.block_size = int(found[1])


def _padding(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.page_padding = number(found[1])


def _scales(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.unit_scales = True


def _moe_config(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.moe_configs[found[1].rpartition("/")[2].strip("'\"[],.")] = False


def _moe_tuned(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.moe_configs[found[1].rpartition("/")[2]] = True


def _reduced(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.auto_fit = int(found[1]), int(found[2])


def _whole(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.auto_fit = int(found[1]), int(found[1])


def _memory_33(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    free, total, share, wanted, consumed, peak, graphs, kv = (number(g) for g in found.groups())
    facts.memory = Memory(free, total, share, wanted, None, consumed, peak, None, graphs, kv)


def _memory_24(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    free, total, share, wanted, weights, peak, non_torch, graphs, kv = (number(g) for g in found.groups())
    facts.memory = Memory(free, total, share, wanted, weights, None, peak, non_torch, graphs, kv)


def _profile_v0(facts: Facts, line: Line, found: re.Match[str]) -> None:
    facts.rank(line, weights_gib=number(found[1]), kv_gib=number(found[4]))


def _architecture(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.architecture = facts.architecture or found[1]


def _length(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.max_model_len = facts.max_model_len or int(found[1])  # a draft model prints its own later


def _batched(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.max_num_batched_tokens = int(found[1])


def _world(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.world_size = max(facts.world_size or 0, int(found[1]))


def _address(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.address = found[1]


def _ready(facts: Facts, line: Line, found: re.Match[str]) -> None:  # noqa: ARG001
    facts.ready, facts.ready_line, facts.went_on = True, line.number, True


class Form(NamedTuple):
    """One line of a log: a literal in it, the expression, the reader of its groups."""

    mark: str
    expression: str
    read: Callable[[Facts, Line, re.Match[str]], None]


_G = r"(-?[\d.]+)"  # a size as format_gib prints it: 5.44, 38.7, -2.51
_SUMMARY = (
    rf"^Free memory on device \({_G}/{_G} GiB\) on startup. Desired GPU memory utilization is \({_G}, {_G} GiB\). "
)

FORMS = (
    # The version; a start begins here (see BANNERS).
    Form("  version ", r"\s{2}version (\d\S*)\s*$", _version),
    Form("  model ", r"█\s+model\s+(\S.*?)\s*$", _banner_model),
    Form("server version ", r"vLLM (?:API )?server version (\d[^\s,]*)(?:, serving model (.+))?", _version),
    Form("LLM engine (", r"^Initializing an? (?:V\d )?LLM engine \(v([^)]+)\) with config: (.*)$", _engine),
    # What was asked for: 0.9 and later; before, all arguments.
    Form("non-default args: ", r"non-default args: (\{.*)$", _args),
    Form("args: Namespace(", r"args: (Namespace\(.*)$", _all_args),
    Form("Resolved architecture", r"^Resolved architectures?: \[?'?(\w+)", _architecture),
    Form("Using max model len", r"^Using max model len (\d+)", _length),
    Form("Chunked prefill is enabled with", r"max_num_batched_tokens=(\d+)", _batched),
    Form(" is assigned as DP rank", r"in world size (\d+) is assigned", _world),
    # Weights: 0.8 and later (with "memory" in all runners since 0.26); before.
    Form("Model loading took ", rf"^Model loading took {_G} (?:GiB|GB)\b", _weights),
    Form("model weights took ", rf"^Loading model weights took {_G} (?:GiB|GB)\b", _weights),
    Form("Loading weights took ", r"^Loading weights took ([\d.]+) seconds", _load),
    # KV cache: 0.10 and later; a CPU; a size that was given; V0.
    Form("Available KV cache memory", rf"^Available KV cache memory: {_G} GiB", _kv_memory),
    Form("for KV cache on node", rf"^Explicitly set \({_G}/[\d.]+\) GiB for KV cache", _given_kv),
    Form("memory for KV Cache as specified", rf"reserved {_G} GiB memory for KV Cache", _given_kv),
    Form(
        "reserved for KV Cache is",
        rf"model weights take {_G}GiB; non_torch_memory takes {_G}GiB; PyTorch activation peak memory takes {_G}GiB; "
        rf"the rest of the memory reserved for KV Cache is {_G}GiB",
        _profile_v0,
    ),
    # One line since 0.25; two before.
    Form(
        "KV cache size:",
        r"^([A-Z]\w+(?: \+ \w+)?) KV cache size: ([\d,]+) tokens"
        r"(?:, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x)?",
        _pool,
    ),
    Form("Maximum concurrency for", r"^Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x", _concurrency),
    Form(" blocks: ", r"^# \w+ blocks: (\d+)", _blocks),
    # Graphs: what is charged before the cache is sized, and what they take.
    Form("Estimated CUDA graph memory", rf"^Estimated CUDA graph memory: {_G} GiB total", _graphs_estimated),
    Form("Graph capturing finished", rf"^Graph capturing finished in \d+ secs?(?:, took {_G} GiB)?", _graphs),
    Form(
        "CUDA graph pool memory", rf"^CUDA graph pool memory: {_G} GiB \(actual\), {_G} GiB \(estimated\)", _graph_pool
    ),
    # Kernels.
    Form("potential backends", r"^Using (\w+)(?: attention)? backend out of potential backends: (.*)$", _attention),
    Form(
        "Overriding with", r"Overriding with (\w+)(?: attention backend)? out of potential backends: (.*)$", _attention
    ),
    Form(
        " backend",
        r"^(?:Using|Selected) ([A-Za-z][\w .\-]*?) backend(?: on V1 engine| \(selected via [^)]*\))?\.?$",
        _attention_old,
    ),
    Form("for vit attention", r"^Using (?:default )?backend (\S+) for vit attention", _vision),
    Form("MLA prefill backend", r"^Using (\w+) MLA prefill backend", _prefill),
    Form(
        " MoE backend",
        r"^Using '?([\w.\-]+)'? (?:([\w .\-]+?) )?MoE backend(?: out of potential backends: (.*)|\b)",
        _moe,
    ),
    Form(
        "Using ",
        r"^Using (\w+) for ((?:mixed-precision linear|(?:MXFP8|MXFP6|MXFP4|NVFP4) GEMM)|Auto\w+|CompressedTensors\w+)",
        _linear,
    ),
    Form("Selected ", r"^Selected (\w+Kernel\w*) for (\w+)", _linear),
    Form("MoE config", r"[Cc]onfig file not found at (.+?)(?:, to create|\s*$)", _moe_config),
    Form("for MoE layer", r"^Using configuration from (\S+) for MoE layer", _moe_tuned),
    Form("KV cache scaling factor", r"^Using KV cache scaling factor 1\.0", _scales),
    # Hybrid models, and the length that vLLM finds itself.
    Form("attention block size to", r"^Setting attention block size to (\d+) tokens", _block_size),
    Form("Padding mamba page size", r"^Padding mamba page size by ([\d.]+)%", _padding),
    Form("Auto-fit max_model_len: reduced", r"reduced from (\d+) to (\d+)", _reduced),
    Form("Auto-fit max_model_len: full", r"full model context length (\d+) fits", _whole),
    # Times, the summary, and that it serves.
    Form("torch.compile", r"torch\.compile (?:took|takes) ([\d.]+) s in total", _compile),
    Form("init engine (", r"^init engine \([^)]*\) took ([\d.]+) s", _init),
    Form(
        "on startup. Desired",
        _SUMMARY
        + rf"Actual usage is {_G} GiB for consumed memory \(weights \+ non-torch\), {_G} GiB for peak activation, "
        rf"and {_G} GiB for CUDAGraph memory\..*Current kv cache memory in use is {_G} GiB",
        _memory_33,
    ),
    Form(
        "on startup. Desired",
        _SUMMARY
        + rf"Actual usage is {_G} GiB for weight, {_G} GiB for peak activation, {_G} GiB for non-torch memory, "
        rf"and {_G} GiB for CUDAGraph memory\..*Current kv cache memory in use is {_G} GiB",
        _memory_24,
    ),
    Form("Starting vLLM", r"^Starting vLLM (?:API )?server(?: \d+)? on (\S+)", _address),
    Form("running on http", r"^Uvicorn running on (\S+)", _address),
    Form("Application startup complete", r"Application startup complete", _ready),
)
BANNERS = ("  version ", "server version ")
# What a start prints only after its banner and arguments.
LATER = (
    "Model loading took ",
    "model weights took ",
    "KV cache size:",
    " blocks: ",
    "init engine (",
    "Application startup complete",
)


def read(facts: Facts, line: Line, forms: Iterable[Form] = FORMS) -> bool:
    """Take what a line says; whether it was one of ours. A figure that is no number is no figure."""
    known = False
    for form in forms:
        found = re.search(form.expression, line.text) if form.mark in line.text else None
        if found:
            known = True
            with suppress(ValueError, OverflowError):
                form.read(facts, line, found)
    return known

"""What vLLM printed beside what the memory model predicts for the same command: a check of both.

The model, the layout and the limits come from the log's own arguments, the machine from the user: a log names none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.command import arguments
from vllm_advisor.errors import AdvisorError
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_advisor.estimate import Configuration, Estimated
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.logs_args import Value
    from vllm_advisor.vllm.logs_facts import Facts, Pool


class Row(NamedTuple):
    """One figure. `unit`: GiB, tokens or x. None: not printed, or not predicted."""

    name: str
    unit: str
    printed: float | None
    predicted: float | None
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float | None:
        """Predicted against printed, as a share of the printed."""
        if self.printed is None or self.predicted is None or not self.printed:
            return None
        return self.predicted / self.printed - 1


class Comparison(NamedTuple):
    """The estimate and its rows; `estimated` None: why it could not be made stands in `why_not`."""

    estimated: Estimated | None = None
    rows: tuple[Row, ...] = ()
    assumed: tuple[str, ...] = ()
    why_not: str = ""


def compare(facts: Facts, node: Node | None, vllm: str | None, find: Callable[[str], ModelSpec]) -> Comparison:
    """The log's figures against the model's. `find` gives a ModelSpec for a name, or raises AdvisorError."""
    from vllm_advisor.estimate import estimate, release  # noqa: PLC0415  not every log can be compared

    if facts.model is None:
        return Comparison(why_not="the log does not name the model")
    if node is None:
        return Comparison(why_not="--gpu or --node says what machine it ran on")
    try:
        known = release.named(vllm or facts.version or "latest")
        found = estimate(find(facts.model), node, known.surface, configuration(facts))
    except AdvisorError as error:
        return Comparison(why_not=error.message)
    return Comparison(found, tuple(_rows(facts, found)), (*known.assumed, *found.assumed))


def configuration(facts: Facts, kv_bytes: int | None = None) -> Configuration:
    """The arguments of a log as the estimate takes them; `kv_bytes` fixes the KV cache at what was printed."""
    from vllm_advisor.estimate import Configuration  # noqa: PLC0415

    asked, known = arguments(facts), facts.config
    given = int(facts.given_kv_gib * GIB) if facts.given_kv_gib else None
    length = asked.get("max_model_len")
    return Configuration(
        tp=_whole(asked, "tensor_parallel_size", known) or 1,
        pp=_whole(asked, "pipeline_parallel_size", known) or 1,
        dp=_whole(asked, "data_parallel_size", known) or 1,
        dcp=_whole(asked, "decode_context_parallel_size", known) or 1,
        expert_parallel=asked.get("enable_expert_parallel") is True,
        quantization=_text(asked.get("quantization")),
        kv_cache_dtype=_text(asked.get("kv_cache_dtype")),
        max_model_len=_fitted(facts) or (length if isinstance(length, int) and length > 0 else facts.max_model_len),
        gpu_memory_utilization=_share(asked.get("gpu_memory_utilization")),
        max_num_seqs=_whole(asked, "max_num_seqs"),
        max_num_batched_tokens=_whole(asked, "max_num_batched_tokens") or facts.max_num_batched_tokens,
        enforce_eager=asked.get("enforce_eager") is True,
        block_size=_whole(asked, "block_size"),
        kv_cache_memory_bytes=kv_bytes or _whole(asked, "kv_cache_memory_bytes") or given,
        adapted=bool(asked.get("speculative_config") or asked.get("enable_lora")),
    )


def _fitted(facts: Facts) -> int | None:
    return facts.auto_fit[1] if facts.auto_fit else None


def _whole(asked: dict[str, Value], name: str, known: dict[str, Value] | None = None) -> int | None:
    value = asked.get(name, (known or {}).get(name))
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _share(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) and value not in ("auto", "") else None


def _rows(facts: Facts, found: Estimated) -> Iterator[Row]:
    budget, pool = found.budget, limiting(facts)
    kv = budget.kv_cache
    graphs = budget.captured or budget.graphs
    least = _least(facts)
    yield Row("weights per rank", "GiB", _most(facts, "weights_gib"), budget.weights / GIB)
    yield Row("KV cache memory", "GiB", least, kv.mid / GIB, kv.low / GIB, kv.high / GIB)
    yield Row("KV cache size", "tokens", float(pool.tokens) if pool else None, float(budget.kv_tokens))
    if pool is None or pool.length in (None, found.plan.max_model_len):
        yield Row("requests of full length", "x", pool.concurrency if pool else None, budget.max_concurrency)
    yield Row("CUDA graphs", "GiB", _most(facts, "graphs_gib"), graphs.mid / GIB, graphs.low / GIB, graphs.high / GIB)


def _most(facts: Facts, name: str) -> float | None:
    return max((v for rank in facts.ranks.values() if (v := getattr(rank, name)) is not None), default=None)


def _least(facts: Facts) -> float | None:
    return min((rank.kv_gib for rank in facts.ranks.values() if rank.kv_gib is not None), default=None)


def limiting(facts: Facts) -> Pool | None:
    """The engine with the smallest cache."""
    return min(facts.pools.values(), key=lambda pool: pool.tokens, default=None)

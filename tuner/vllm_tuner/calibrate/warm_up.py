"""The requests that leave nothing to be compiled for the first user: derived from a plan, the cheapest first.

What a first request can meet, and which step meets it before: an input length whose number of tokens no kernel was
built for (`length`); a prompt of several chunks (`chunk`); a batch of as many decoding sequences as a graph has
(`batch`); a prompt that joins a decoding batch (`mixed`); a sampler that nobody used yet (`path`). vLLM captures its
graphs itself at the start (v1/worker/gpu_worker.py compile_or_warm_up_model), but kernels outside of them are built
when their shape first comes, and on a CPU vLLM runs one shape only (v1/worker/cpu_model_runner.py warming_up_model).
Samplers are compiled by their first user: the ranks of logprobs (v1/sample/ops/logprobs.py batched_count_greater_than)
and parts of top-k and top-p (v1/sample/ops/topk_topp_sampler.py) are torch.compile functions that no start calls.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.memory.graphs import capture_sizes, largest


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vllm_advisor.hardware import Gpu
    from vllm_advisor.plan import Plan

SHORT = 16  # tokens of a prompt whose length is not the point
ANSWER = 4  # tokens: the first comes from the prompt's step, later ones from decoding steps
_BATCH_ANSWER = 8
_MIXED_ANSWER = 64  # so that the prompt which joins still finds them decoding
# A decoding step moves all weights for one token a sequence: about as long as this many tokens of a prompt (estimate).
_STEP_TOKENS = 64
# Triton builds a kernel anew for an integer that 16 divides and for one that it does not (triton/runtime/jit.py).
_ODD = 3
# Token ids of a prompt: any vocabulary has them, and no model's first special tokens are among them.
FIRST_ID, LAST_ID = 100, 999
# Sampling paths by name: what a request says besides its prompt. `chat` goes through the chat template.
PATHS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.9, "top_k": 40},
    "penalties": {"temperature": 0.8, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "logprobs": {"temperature": 0.0, "logprobs": 5},
    "structured": {
        "temperature": 0.0,
        "ignore_eos": False,  # when the object is closed, only the end of the text is allowed
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "warm_up",
                "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
            },
        },
    },
    "chat": {"temperature": 0.0},
}


class Limits(NamedTuple):
    """What bounds a server's batches. `graph_sizes`: captured batch sizes, () where none are. `engines`: DP."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    graph_sizes: tuple[int, ...] = ()
    engines: int = 1


class Ask(NamedTuple):
    """One request: tokens in, tokens out, how many answers to the one prompt, and its sampling path."""

    input_tokens: int
    output_tokens: int
    answers: int = 1
    path: str = "greedy"

    @property
    def cost(self) -> int:
        """In tokens of a prompt, roughly: for the order alone."""
        return (self.input_tokens + self.output_tokens) * self.answers + _STEP_TOKENS * self.output_tokens


class Step(NamedTuple):
    """Requests that are in flight together. `kind`: length, chunk, batch, mixed or path."""

    kind: str
    name: str
    asks: tuple[Ask, ...]

    @property
    def cost(self) -> int:
        """The sum of its requests'."""
        return sum(ask.cost for ask in self.asks)


def limits(plan: Plan, gpu: Gpu, graph_sizes: Sequence[int] | None = None) -> Limits:
    """Of a plan. `graph_sizes`: those that the command names itself; None: vLLM's own choice for this plan."""
    graphs = plan.enforce_eager or gpu.vendor is Vendor.CPU
    own = () if graphs else capture_sizes(plan.max_num_seqs, plan.max_num_batched_tokens, largest(gpu))
    sizes = own if graph_sizes is None or graphs else tuple(sorted(set(graph_sizes)))
    return Limits(
        plan.max_model_len, plan.max_num_seqs, plan.max_num_batched_tokens, sizes, plan.data_parallel_size
    )  # fmt: skip


def steps(bounds: Limits, paths: Iterable[str] = tuple(PATHS)) -> tuple[Step, ...]:
    """The whole warm-up, the cheapest step first: a limit of time leaves the dear shapes out. `paths`: of `PATHS`."""
    found = [*_lengths(bounds), *_chunks(bounds), *_batches(bounds), *_mixed(bounds), *_paths(bounds, paths)]
    return tuple(sorted(found, key=lambda step: (step.cost, step.kind, step.name)))


def longest_prompt(bounds: Limits) -> int:
    """Tokens of the longest prompt that leaves room for an answer."""
    return max(1, bounds.max_model_len - ANSWER)


def buckets(bounds: Limits) -> tuple[int, ...]:
    """Upper ends of the length buckets: 16, 64, 256, … and the longest prompt."""
    top = longest_prompt(bounds)
    return (*takewhile(lambda n: n < top, (SHORT * 4**k for k in range(32))), top)


def _lengths(bounds: Limits) -> Iterator[Step]:
    """Powers of two within one step's tokens, so that every range of compiled sizes is met; each also odd."""
    top = min(longest_prompt(bounds), bounds.max_num_batched_tokens)
    ends = (*takewhile(lambda n: n < top, (SHORT * 2**k for k in range(32))), top)
    for length in dict.fromkeys(n for end in ends for n in (end, end - _ODD) if n > 0):
        yield _one("length", length)


def _chunks(bounds: Limits) -> Iterator[Step]:
    """Prompts that take more than one step: a little more than one, four, and the longest."""
    step, top = bounds.max_num_batched_tokens, longest_prompt(bounds)
    for length in sorted({step + SHORT, 4 * step, top}):
        if step < length <= top:
            yield _one("chunk", length)


def _one(kind: str, length: int) -> Step:
    return Step(kind, f"{length} tokens", (Ask(length, ANSWER),))


def _batches(bounds: Limits) -> Iterator[Step]:
    """One prompt with as many answers: they are in the batch together, however slowly requests would arrive."""
    if bounds.max_model_len < SHORT + _BATCH_ANSWER:
        return
    for size in _batch_sizes(bounds):
        answers = size * bounds.engines
        # The answer is longer by the steps that the prompts need, so that the first still decodes with the last.
        steps_in = -(-SHORT * size // bounds.max_num_batched_tokens)
        tokens = min(_BATCH_ANSWER + steps_in, bounds.max_model_len - SHORT)
        yield Step("batch", f"{size} at once", (Ask(SHORT, tokens, answers, "sampled" if answers > 1 else "greedy"),))


def _batch_sizes(bounds: Limits) -> tuple[int, ...]:
    """Every graph's size that decoding can reach; without graphs the powers of two; and a full batch."""
    top = bounds.max_num_seqs
    doubled = takewhile(lambda n: n < top, (2**k for k in range(32)))
    return tuple(sorted({*(size for size in bounds.graph_sizes or doubled if size < top), top}))


def _mixed(bounds: Limits) -> Iterator[Step]:
    """A prompt that fills a step beside sequences that decode."""
    prompt = min(longest_prompt(bounds), bounds.max_num_batched_tokens)
    answer = min(_MIXED_ANSWER, bounds.max_model_len - SHORT)
    if bounds.max_num_seqs > 1 and answer > ANSWER:
        yield Step("mixed", f"{prompt} tokens beside decoding", (Ask(SHORT, answer), Ask(prompt, ANSWER)))


def _paths(bounds: Limits, names: Iterable[str]) -> Iterator[Step]:
    for name in dict.fromkeys(names):
        if bounds.max_model_len >= SHORT + _BATCH_ANSWER:
            yield Step("path", name, (Ask(SHORT, _BATCH_ANSWER, path=name),))

"""Two servers on the same prompts: vLLM's `prompt_logprobs`, read and compared.

vLLM answers `/v1/completions` with `choices[].prompt_logprobs`: for each prompt token None (the first) or a table from
token id to {logprob, rank, …}, the `prompt_logprobs` most likely ones and the prompt's own. Only those are known, so
the divergence is that of the known tokens with all others put into one: never more than the true one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import EngineError
from vllm_tuner.quality import CLEAR, Compared


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOP = 20  # vLLM's default of --max-logprobs; more needs the flag on both servers
_LEAST = 1e-12  # of probability: what is left over is never taken for less


class Position(NamedTuple):
    """What a model said of one token of a prompt: the token, and log-probabilities by token id, its own included."""

    token: int
    logprobs: Mapping[int, float]

    @property
    def best(self) -> int:
        """The most likely token; of equals the one with the smallest id."""
        return min(self.logprobs, key=lambda token: (-self.logprobs[token], token))

    @property
    def lead(self) -> float:
        """How much the most likely token's log-probability is above the next one's; infinite where it is alone."""
        first, *others = sorted(self.logprobs.values(), reverse=True)
        return first - others[0] if others else math.inf


def request(model: str, ids: Sequence[int]) -> dict[str, Any]:
    """The body of a request that scores a prompt: one token is generated, for vLLM generates at least one."""
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP}


def positions(body: Any, ids: Sequence[int]) -> tuple[Position, ...]:
    """The response to `request`, without the first token. Raises EngineError for an answer of another form."""
    try:
        rows = body["choices"][0]["prompt_logprobs"]
        found = [_position(row, token) for row, token in zip(rows[1:], ids[1:], strict=True)]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"the server's prompt_logprobs can't be read: {error!r}") from error
    return tuple(found)


def _position(row: Mapping[str, Any], token: int) -> Position:
    table = {int(key): float(value["logprob"]) for key, value in row.items()}
    if any(math.isnan(logprob) or logprob > 1e-3 for logprob in table.values()):
        raise ValueError(f"log-probabilities {max(table.values()):g} and NaN are none")
    return Position(token, table if token in table else _missing(token))


def _missing(token: int) -> dict[int, float]:
    raise ValueError(f"token {token} of the prompt is not in its own row")


def compare(reference: Sequence[Position], candidate: Sequence[Position]) -> Compared:
    """One prompt. Raises EngineError when the servers saw different tokens."""
    if [p.token for p in reference] != [p.token for p in candidate]:
        raise EngineError("the two servers tokenized a prompt differently", "send token ids, and serve the same model")
    pairs = list(zip(reference, candidate, strict=True))
    return Compared(
        kl=tuple(divergence(r.logprobs, c.logprobs) for r, c in pairs),
        agreed=tuple(r.best == c.best for r, c in pairs),
        reference_logprobs=tuple(r.logprobs[r.token] for r in reference),
        candidate_logprobs=tuple(c.logprobs[c.token] for c in candidate),
        clear=tuple(r.lead > math.log(CLEAR) for r in reference),
    )


def divergence(reference: Mapping[int, float], candidate: Mapping[int, float]) -> float:
    """KL(reference ‖ candidate) in nats over the tokens that both name, and the rest as one."""
    common = reference.keys() & candidate.keys()
    kl = sum(math.exp(reference[t]) * (reference[t] - candidate[t]) for t in sorted(common) if reference[t] > -math.inf)
    rest = [max(1 - sum(math.exp(table[t]) for t in common), _LEAST) for table in (reference, candidate)]
    return max(kl + rest[0] * math.log(rest[0] / rest[1]), 0.0)

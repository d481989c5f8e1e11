"""What a running server says of prompts and tasks, taken once and judged later: two servers need not run together."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import EngineError
from vllm_tuner.quality import judge
from vllm_tuner.quality_logprobs import Position, compare, positions, request
from vllm_tuner.quality_tasks import kept


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_advisor.workload import Sensitivity
    from vllm_tuner.quality import Quality
    from vllm_tuner.quality_tasks import Task

    Post = Callable[[dict[str, Any]], Any]

ANSWER_TOKENS = 16  # a number of a few digits, and a word before it
_TIMEOUT_S = 600.0
_SAID = 300


class Answers(NamedTuple):
    """One server: positions of every prompt, and the text for every task."""

    positions: tuple[tuple[Position, ...], ...]
    texts: tuple[str, ...]


def completions(url: str, timeout_s: float = _TIMEOUT_S) -> Post:
    """A function that posts a body to URL/v1/completions and returns the JSON. It raises EngineError."""
    import httpx

    def post(body: dict[str, Any]) -> Any:
        try:
            answer = httpx.post(f"{url.rstrip('/')}/v1/completions", json=body, timeout=timeout_s, trust_env=False)
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            said = error.response.text[:_SAID]
            raise EngineError(f"the server refused with {error.response.status_code}: {said}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise EngineError(f"no answer came back: {error!r}") from error

    return post


def take(post: Post, model: str, prompts: Sequence[Sequence[int]], tasks: Sequence[Task] = ()) -> Answers:
    """Score token-id prompts and answer tasks, greedily, one after the other. Raises EngineError."""
    scored = tuple(positions(post(request(model, ids)), ids) for ids in prompts)
    return Answers(scored, tuple(_text(post, model, task) for task in tasks))


def _text(post: Post, model: str, task: Task) -> str:
    body = {"model": model, "prompt": task.prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0}
    try:
        return str(post(body)["choices"][0]["text"])
    except (LookupError, TypeError) as error:
        raise EngineError(f"the server's completion can't be read: {error!r}") from error


def judge_answers(
    reference: Answers, candidate: Answers, sensitivity: Sensitivity, tasks: Sequence[Task] = (), *, seed: int = 0
) -> Quality:
    """The verdict; tasks are grouped by name. Raises ValueError when one server answered less than the other."""
    compared = [compare(*both) for both in zip(reference.positions, candidate.positions, strict=True)]
    results = sorted(kept(tasks, reference.texts, candidate.texts), key=lambda k: k.task.name)
    by_name = {name: tuple(rows) for name, rows in groupby(results, key=lambda k: k.task.name)}
    return judge(compared, sensitivity, by_name, seed=seed)

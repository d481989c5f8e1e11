"""`tuner files keep`: from what was typed to two servers in turns, and what is said of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import NoFeasiblePlan, UsageError
from vllm_tuner.vllm_configs.at_server import play
from vllm_tuner.vllm_configs.listing import listing


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.hardware import Node
    from vllm_tuner.gate import Decision
    from vllm_tuner.serving import Bench
    from vllm_tuner.vllm_configs.at_server import Played
    from vllm_tuner.vllm_configs.listing import Asked


class Load(NamedTuple):
    """What the servers are asked, how thoroughly, and the seconds for all of it."""

    workload: str
    concurrency: int | None
    effort: str
    seconds: float


class Where(NamedTuple):
    """Whose vLLM, and where logs go (None: the user's state folder)."""

    vllm_python: Path
    runs: Path | None


def run(asked: Asked, node: Node, folder: Path, load: Load, where: Where, *, tell: Callable[[str], None]) -> Played:
    """Play the plan with the folder against itself. Raises UsageError where its kernel would not read the files."""
    found = listing(asked, folder)
    if not found.reader.is_read:
        raise UsageError(
            f"nothing to compare: nobody would read the files; {found.reader.why}", "another --moe-backend"
        )
    facts, ranked = _planned(asked, node, load)
    plan = replace(ranked.plan, moe_backend=asked.plan.moe_backend, env=_joined(ranked.plan.env, asked.plan.env))

    def told(so_far: Decision) -> None:
        tell(f"round {so_far.rounds}: won {so_far.wins}, {so_far.outcome}")

    files = [row.file for row in found.rows]
    return play(_bench(facts, ranked, load, where), plan, folder, files, end=time.monotonic() + load.seconds, told=told)


def _joined(own: tuple[tuple[str, str], ...], typed: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dict(own) | dict(typed)).items()))


def _planned(asked: Asked, node: Node, load: Load) -> tuple[Facts, Ranked]:
    """The best plan with the very layout that the files were named for."""
    from vllm_advisor import question
    from vllm_advisor.recommend import recommend

    plan = asked.plan
    work = question.workload(question.Load(load.workload, concurrency=load.concurrency))
    facts = question.facts(node, asked.model, work, asked.surface)
    fixed = Restrictions(
        plan.quantization or "none", None, plan.tensor_parallel_size, 1, plan.data_parallel_size,
        plan.enable_expert_parallel, siblings=False,
    )  # fmt: skip
    plans = recommend(facts, (), fixed, 1).plans
    if not plans:
        raise NoFeasiblePlan(f"{plan.layout} does not fit here", "`advisor recommend` says what does")
    return facts, plans[0]


def _bench(facts: Facts, ranked: Ranked, load: Load, where: Where) -> Bench:
    import platformdirs

    from vllm_tuner.effort import effort
    from vllm_tuner.serving import Bench
    from vllm_tuner.spaces import space
    from vllm_tuner.workloads import Shape, Synthetic

    requests = Synthetic(facts.workload, Shape(facts.model.vocab_size, ranked.plan.max_model_len))
    runs = where.runs or platformdirs.user_state_path("vllm-advisor") / "tuner" / "files"
    return Bench(space(facts, [(1, ranked)], 1), lambda _: requests, effort(load.effort), runs, where.vllm_python)


def show(played: Played, *, json: bool) -> None:
    """The result on stdout."""
    from vllm_advisor.cli import output

    gain = played.decision.gain
    if json:
        output.write_json({
            "schema": 1,
            "kept": played.kept.kept,
            "says": played.kept.says,
            "rounds": played.decision.rounds,
            "gain": [gain.low, gain.mid, gain.high] if gain else None,
            "files": [verdict._asdict() for verdict in played.verdicts],
        })  # fmt: skip
    else:
        output.write([*(f"{verdict.name}: {verdict.says}" for verdict in played.verdicts), played.kept.says])

"""What `tuner files check` says: problems, the proof, and the verdict on a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_tuner.vllm_configs import listing


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tuner.vllm_configs.legal import Problem
    from vllm_tuner.vllm_configs.listing import Listing
    from vllm_tuner.vllm_configs.prove import Heard, Proof
    from vllm_tuner.vllm_configs.serverlog import LogVerdict


def lines(
    found: Listing, problems: Sequence[Problem], heard: Heard | None, verdicts: Sequence[LogVerdict]
) -> list[str]:
    """For people."""
    return [
        *listing.lines(found),
        "",
        *(f"{problem.level}: {problem.file}: {problem.message}" for problem in problems),
        *(() if problems else ("nothing is wrong with it",)),
        *_heard(heard),
        *(f"log: {verdict.state}: {verdict.says}" for verdict in verdicts),
    ]


def _heard(heard: Heard | None) -> Iterator[str]:
    if heard is not None:
        yield f"vLLM {heard.vllm} was asked, with {heard.device} as its device:"
        for proof in heard.proofs:
            yield from _proof(proof)


def _proof(proof: Proof) -> Iterator[str]:
    if proof.proved and not proof.path:
        yield f"  {proof.name}: no file, vLLM's default"
    elif proof.proved:
        yield f"  {proof.name}: proved, vLLM read what the file holds"
    for line in proof.wrong[:3]:
        yield f"  {proof.name}: {line}"
    if proof.untuned:
        shown = ", ".join(map(str, proof.untuned[:4])) + (", …" if len(proof.untuned) > 4 else "")
        yield f"  {len(proof.untuned)} batch sizes that are no key lose vLLM's default: {shown}"


def record(
    found: Listing, problems: Sequence[Problem], heard: Heard | None, verdicts: Sequence[LogVerdict]
) -> dict[str, Any]:
    """As JSON."""
    return listing.record(found) | {
        "problems": [problem._asdict() for problem in problems],
        "proof": _said(heard) if heard else None,
        "log": [verdict._asdict() for verdict in verdicts],
    }


def _said(heard: Heard) -> dict[str, Any]:
    files = [proof._asdict() | {"proved": proof.proved} for proof in heard.proofs]
    return {"vllm": heard.vllm, "device": heard.device, "files": files}

"""How far one model's next-token distributions are from another's, from both models' logits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from vllm_tuner.quality import CLEAR, Compared


if TYPE_CHECKING:
    from collections.abc import Sequence


def compare(reference: torch.Tensor, candidate: torch.Tensor, ids: Sequence[int]) -> Compared:
    """One prompt: logits [tokens, vocab] of both, whose row t predicts token t + 1."""
    p, q = reference[:-1].double().log_softmax(-1), candidate[:-1].double().log_softmax(-1)
    kl = (p.exp() * (p - q)).sum(-1).clamp(min=0)
    same = p.argmax(-1) == q.argmax(-1)
    first, second = p.topk(2, -1).values.unbind(-1)
    following = torch.tensor(ids[1:]).unsqueeze(-1)
    return Compared(
        kl=tuple(kl.tolist()),
        agreed=tuple(same.tolist()),
        reference_logprobs=tuple(p.gather(-1, following).squeeze(-1).tolist()),
        candidate_logprobs=tuple(q.gather(-1, following).squeeze(-1).tolist()),
        clear=tuple((first - second > math.log(CLEAR)).tolist()),
    )


def compare_all(
    reference: Sequence[torch.Tensor], candidate: Sequence[torch.Tensor], prompts: Sequence[Sequence[int]]
) -> tuple[Compared, ...]:
    """Every prompt of two tokens or more."""
    rows = zip(reference, candidate, prompts, strict=True)
    return tuple(compare(p, q, ids) for p, q, ids in rows if len(ids) > 1)

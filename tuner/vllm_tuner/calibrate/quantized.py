"""The accuracy gate without a server: a model with quantized weights against itself, both in our own forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tuner.calibrate.config import read_config
from vllm_tuner.calibrate.divergence import compare_all
from vllm_tuner.calibrate.forward import Hooks, logits, run
from vllm_tuner.calibrate.losses import Quantized
from vllm_tuner.calibrate.weights import Weights
from vllm_tuner.quality import judge


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vllm_advisor.workload import Sensitivity
    from vllm_tuner.quality import Quality


def quality(
    folder: Path, prompts: Sequence[Sequence[int]], fmt: str, sensitivity: Sensitivity, *,
    wrong_scale: Mapping[str, float] | None = None,
) -> Quality:  # fmt: skip
    """The verdict on weights in `fmt` (mxfp4, fp8 with a scale a channel), activations exact.

    `wrong_scale` multiplies chosen modules, as a broken checkpoint would. Raises BadInput, UnsupportedModel.
    """
    config, weights = read_config(folder), Weights(folder)
    streams = run(weights, config, prompts, [Hooks(), Quantized(fmt, wrong_scale)])
    exact, wrong = (logits(weights, config, hidden) for hidden in streams)
    return judge(compare_all(exact, wrong, prompts), sensitivity)

"""What a calibration found, as JSON for calibration.json and programs, and as lines for people."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from vllm_tuner.calibrate import overlay
from vllm_tuner.calibrate.proposals import by_sensitivity, ignore_list, skip_layers
from vllm_tuner.quality import bootstrap, mean_kl


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vllm_tuner.calibrate.experts import Coverage
    from vllm_tuner.calibrate.run import Calibration
    from vllm_tuner.quality import Compared

SHOWN = 5
COLD_SHOWN = 12
SKIP = "--kv-cache-dtype-skip-layers"
_CONSEQUENCE = (
    "  nobody saw what these do with real tokens: their error shows up later, on the text that needs them;",
    "  add prompts of that kind (--prompts), or leave them in bf16, and check with the accuracy gate",
)


def record(found: Calibration) -> dict[str, Any]:
    """One JSON object; proposals are by our own rules, see `proposals`."""
    formats = dict.fromkeys(loss.fmt for loss in found.module_losses)
    return {
        "prompts": {"count": len(found.prompts), "tokens": sum(found.prompts), "longest": max(found.prompts)},
        "scales": [s._asdict() for s in found.scales],
        "magnitudes": [_magnitudes(s) for s in found.stats],
        "cache": {
            "kl_scale_1": _interval(found.plain),
            "kl_calibrated": _interval(found.scaled),
            "attention_error": [round(loss.error, 6) for loss in found.cache_losses],
            "skip_layers": list(skip_layers(found.cache_losses)),
        },
        "quantization": {fmt: _format(found, fmt) for fmt in formats},
        "experts": _experts(found.coverage),
        "stopped": found.stopped,
    }


def _magnitudes(stats: Any) -> dict[str, Any]:
    spreads = {"k": stats.k, "v": stats.v, "q": stats.q}
    return {"layer": stats.layer} | {
        kind: {"amax": spread.amax, "percentiles": list(spread.percentiles)} for kind, spread in spreads.items()
    }


def _interval(compared: Sequence[Compared]) -> list[float] | None:
    return list(bootstrap(compared, mean_kl)) if len(compared) > 1 else None


def _format(found: Calibration, fmt: str) -> dict[str, Any]:
    ordered = by_sensitivity(found.module_losses, fmt)
    return {
        "modules": [m._asdict() for m in ordered],
        "layers": [{"layer": n.layer, "error": n.error} for n in found.layer_losses if n.fmt == fmt],
        "ignore": list(ignore_list(found.module_losses, fmt)),
    }


def _experts(coverage: Coverage | None) -> dict[str, Any] | None:
    if coverage is None:
        return None
    return {
        "wanted": coverage.wanted, "rounds": coverage.rounds, "aimed_tokens": coverage.spent,
        "counts": [e._asdict() for e in coverage.experts],
        "cold": [[e.layer, e.expert] for e in coverage.cold()],
        "unreached": [[e.layer, e.expert] for e in coverage.unreached()],
    }  # fmt: skip


def lines(found: Calibration, out: Path | None, form: overlay.Form, vllm: str) -> list[str]:
    """A page for a person: scales, cache, layers, experts, and the command."""
    return [
        *_scale_lines(found),
        *_cache_lines(found),
        *(line for fmt in dict.fromkeys(m.fmt for m in found.module_losses) for line in _loss_lines(found, fmt)),
        *_expert_lines(found.coverage),
        *([f"stopped early ({found.stopped}): what is not said here was not measured"] if found.stopped else []),
        *(_overlay_lines(found, out, form, vllm) if out else ["no folder was named, so nothing is written"]),
    ]


def _scale_lines(found: Calibration) -> list[str]:
    k, v = [s.k for s in found.scales], [s.v for s in found.scales]
    widest = max(found.stats, key=lambda s: s.k.outlier_ratio)
    ratio = f"{widest.k.outlier_ratio:.1f} times the 99.9th percentile"
    return [
        f"{len(found.prompts)} prompts, {sum(found.prompts):,} tokens, {len(found.scales)} layers",
        f"scales (amax / 448): k {min(k):.3g} to {max(k):.3g}, v {min(v):.3g} to {max(v):.3g}",
        f"strongest outliers in keys: layer {widest.layer}, amax {widest.k.amax:.3g} is {ratio}",
    ]


def _cache_lines(found: Calibration) -> list[str]:
    rows = (("scale 1", found.plain), ("these scales", found.scaled))
    kl = [_kl_line(name, compared) for name, compared in rows if len(compared) > 1]
    skipped = skip_layers(found.cache_losses)
    return [*kl, *([f"layers that suffer most: {', '.join(map(str, skipped))}"] if skipped else [])]


def _kl_line(name: str, compared: Sequence[Compared]) -> str:
    low, mid, high = bootstrap(compared, mean_kl)
    return f"simulated FP8 cache with {name}: KL {mid:.5f} nats a token (95 %: {low:.5f} to {high:.5f})"


def _loss_lines(found: Calibration, fmt: str) -> list[str]:
    worst = by_sensitivity(found.module_losses, fmt)[:SHOWN]
    ignored = ignore_list(found.module_losses, fmt)
    listed = [f"  {m.output_error:.4f}  {m.module}" for m in worst]
    proposal = (
        f"  leave in bf16: {', '.join(ignored)}" if ignored else "  nothing stands out, so nothing to leave in bf16"
    )
    return [f"{fmt}: relative error of outputs, the most sensitive first", *listed, proposal]


def _expert_lines(coverage: Coverage | None) -> list[str]:
    if coverage is None:
        return []
    cold = coverage.cold()
    seen = (
        f"{len(coverage.experts) - len(cold)} of {len(coverage.experts)} experts saw {coverage.wanted} tokens or more"
    )
    rounds = "1 round" if coverage.rounds == 1 else f"{coverage.rounds} rounds"
    aimed = f"{seen} ({rounds} of aimed prompts)"
    named = [f"  cold: layer {e.layer} expert {e.expert}, {e.tokens} tokens" for e in cold[:COLD_SHOWN]]
    more = [f"  and {len(cold) - COLD_SHOWN} more: --json names them all"] if len(cold) > COLD_SHOWN else []
    return [aimed, *named, *more, *(_CONSEQUENCE if cold else ())]


def _overlay_lines(found: Calibration, out: Path, form: overlay.Form, vllm: str) -> list[str]:
    said = [f"serve it: {command(found, out, vllm)}", f"plan it: advisor recommend {shlex.quote(str(out))}"]
    if skip_layers(found.cache_losses) and not _can_skip(vllm):
        said.append(f"vLLM {vllm} has no {SKIP}: the caches of those layers become FP8 too")
    if form is overlay.Form.COMPRESSED_TENSORS:
        said.append("not for gfx94x (MI300X, MI325X): vLLM does not double scales of this form there; use --form fp8")
    return said


def command(found: Calibration, out: Path, vllm: str) -> str:
    """What serves the overlay with its scales, in the words of that version; layers to skip where it can."""
    skipped = skip_layers(found.cache_losses)
    served = overlay.serve_command(shlex.quote(str(out)))
    return " ".join([served, SKIP, *map(str, skipped)]) if skipped and _can_skip(vllm) else served


def _can_skip(vllm: str) -> bool:
    """Whether that release has the flag. Raises UnknownVllm."""
    from vllm_advisor.vllm import surface

    return SKIP in surface.load(vllm).flags

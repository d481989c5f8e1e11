"""Which of vLLM's kernels for experts reads a tuned file: Triton's own, and nothing else by choice.

People have tuned for hours and written files that their server never opened, because the selector had taken FlashInfer,
Marlin or AITER. So nothing is called tuned here before this question is answered for the plan at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import backends, schemes


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

_FORMATS_OF_TRITON_KERNELS = ("mxfp4", "mxfp8")
_SMALLEST_DEEPGEMM_BATCH = 128  # deep_gemm_moe.py:68-70: its alignment for contiguous layouts
_WIDEST_TRITON_EXPERT = 512  # deep_gemm_moe.py:102
_BY_FLAG = {"deep_gemm": "DEEPGEMM", "cutlass": "VLLM_CUTLASS"}  # oracle/fp8.py `map_fp8_backend`; others by their name
_BATCH_INVARIANT = ("VLLM_BATCH_INVARIANT", "1")
_E8M0_OFF = ("VLLM_USE_DEEP_GEMM_E8M0", "0")


class Reader(NamedTuple):
    """The experts' kernel and whether it reads a tuned file. `reads`: always, sometimes or never; `why` in words."""

    backend: str | None
    reads: str
    why: str
    unverified: str | None = None

    @property
    def is_read(self) -> bool:
        """Whether any batch size takes its tiles from the file."""
        return self.reads != "never"


def reader(model: ModelSpec, plan: Plan, surface: Surface, arch: str, *, intermediate: int = 0) -> Reader:
    """Who multiplies the experts under this plan, and whether a tuned file reaches it.

    `arch` as in Gpu.arch. `intermediate`: an expert's width on the rank, where known. A `--moe-backend` of the plan
    takes the place of vLLM's own choice.
    """
    if model.moe is None:
        return Reader(None, "never", "the model has no experts")
    scheme = schemes.expert_scheme(model, plan)
    backend, unverified = _backend(model, plan, surface, arch, scheme)
    reads, why = _reads(backend, scheme, arch, plan, intermediate)
    return Reader(backend, reads, why, unverified)


def _backend(model: ModelSpec, plan: Plan, surface: Surface, arch: str, scheme: str) -> tuple[str | None, str | None]:
    """The kernel, and what its choice rests on that vLLM's source does not tell."""
    if plan.moe_backend and plan.moe_backend != "auto":
        return _BY_FLAG.get(plan.moe_backend, plan.moe_backend.upper()), None
    activation = model.moe.activation if model.moe else ""
    aiter_on = schemes.aiter_experts(plan)
    found = backends.moe(
        surface, arch, scheme, activation, aiter=aiter_on, expert_parallel=plan.enable_expert_parallel,
        model_type=model.model_type,
    )  # fmt: skip
    rests = backends.unverified(surface, arch, scheme, moe=True, aiter=aiter_on, model_type=model.model_type)
    return found, rests


def _reads(backend: str | None, scheme: str, arch: str, plan: Plan, intermediate: int) -> tuple[str, str]:
    if backend is None:
        return "never", f"no kernel of this release takes {scheme} experts on {arch}: the server would not start"
    if _BATCH_INVARIANT in plan.env:
        return "never", "VLLM_BATCH_INVARIANT=1 keeps vLLM from looking (fused_moe.py:1126)"
    if backend in ("TRITON", "BATCHED_TRITON", "EMULATION"):
        return _triton(backend, scheme)
    if backend == "DEEPGEMM":
        return _deepgemm(scheme, plan, intermediate)
    if backend == "VLLM_CUTLASS" and scheme.startswith("fp8") and arch in ("sm100", "sm103"):
        return "sometimes", "CUTLASS hands batches of up to 8 tokens to Triton's kernel (triton_cutlass_moe.py:75-85)"
    return "never", f"{backend} has its own tiles and never looks for a file"


def _triton(backend: str, scheme: str) -> tuple[str, str]:
    if backend == "EMULATION":
        return "always", "weights are unpacked, then multiplied by Triton's kernel, which looks a file without dtype up"
    if scheme in _FORMATS_OF_TRITON_KERNELS:
        return "never", "this TRITON is the triton_kernels library, which chooses its own tiles"
    if backend == "BATCHED_TRITON":
        return "always", "it looks for the padded number of tokens an expert, not for the batch's"
    return "always", "Triton's kernel takes its tiles from the file (fused_moe.py:1421-1450)"


def _deepgemm(scheme: str, plan: Plan, intermediate: int) -> tuple[str, str]:
    """triton_deep_gemm_moe.py:77-86 and deep_gemm_moe.py:68-112, the same in every release from 0.24.0 on."""
    if scheme in _FORMATS_OF_TRITON_KERNELS or _E8M0_OFF not in plan.env:
        return "never", "DeepGEMM takes every batch while VLLM_USE_DEEP_GEMM_E8M0 is on, as it is by default"
    if 0 < intermediate <= _WIDEST_TRITON_EXPERT:
        return "always", f"DeepGEMM leaves experts of up to {_WIDEST_TRITON_EXPERT} columns to Triton's kernel"
    return "sometimes", f"DeepGEMM leaves batches below {_SMALLEST_DEEPGEMM_BATCH} tokens to Triton's kernel"

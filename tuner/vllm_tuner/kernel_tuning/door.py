"""The kernels as this room sees them: what tunes, what a server reads, and how this machine is named.

All of it comes through `vllm_tuner.kernels`, and torch with it; tests give `cli` another door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_tuner import kernels as lazy
from vllm_tuner.kernel_tuning.contract import Machine


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_tuner.kernel_tuning.contract import Kernels, Problem
    from vllm_tuner.kernel_tuning.shapes import Shape

_MOST = 1e30  # bytes or operations a second: no bound
_ABOVE = 1.2  # clocks above the datasheet's, caches: an estimate on the safe side


class Door(NamedTuple):
    """What a run needs of this machine.

    `files` writes the hand-off; `make` builds a problem from its fields; `arch` is a GPU's or an instruction set's.
    `bucket` is the last number of tokens of a bucket; `peaks` are what an op's bounds are computed from.
    """

    kernels: Kernels
    files: Any
    make: Callable[..., Problem]
    arch: str
    ops: tuple[str, ...]
    machine: Callable[[Problem], Machine]
    peaks: Callable[[str], object]

    def problems(self, shapes: Sequence[Shape], tokens: Sequence[int], op: str = "") -> tuple[Problem, ...]:
        """Every shape at every batch size, each once; `op` "": the one that our plugin uses here for such a shape.

        Raises UsageError for an op that this machine does not have.
        """
        if op and op not in self.ops:
            raise UsageError(f"{op} is not tuned on {self.arch}", f"one of {', '.join(self.ops)}")
        found = [one for m in tokens for shape in shapes for one in self._problems(shape, m, op or self._op(shape))]
        return tuple(dict.fromkeys(found))

    def _op(self, shape: Shape) -> str:
        """Folded FP8 where there is a unit for it, else 16-bit activations, as our plugin chooses."""
        first = "moe" if shape.experts else "mxfp4"
        wanted = (f"{first}.w4a8", f"{first}.w4a16")
        return next((op for op in wanted if op in self.ops), self.ops[0])

    def _problems(self, shape: Shape, m: int, op: str) -> Iterator[Problem]:
        n, k, experts, top_k = shape
        if experts and op.startswith("cpu."):  # one expert after the other, each with its share of the tokens
            share = self.files.token_bucket(max(1, -(-m * top_k // experts)))
            yield self.make(op=op, arch=self.arch, m=share, n=n, k=k)
            yield self.make(op=op, arch=self.arch, m=share, n=k, k=n // 2)
        elif bool(experts) == op.startswith("moe."):
            tokens = self.files.token_bucket(m)
            yield self.make(op=op, arch=self.arch, m=tokens, n=n, k=k, experts=experts, top_k=top_k)


def here(*, on_cpu: bool = False) -> Door:
    """The kernels on this machine's GPU, or on its processor. Raises UsageError where they cannot run or be built."""
    torch: Any = lazy.needed("torch")
    autotune: Any = lazy.module("autotune")
    gpu = torch.cuda.is_available() and not on_cpu
    arch = _gpu(torch) if gpu else _processor()
    try:
        ops = tuple(autotune.catalog(arch))
    except KeyError:
        raise UsageError(f"no kernel of ours is built for {arch}", "tuner kernels --cpu: the processor's") from None
    return Door(autotune, lazy.module("handoff"), autotune.Problem, arch, ops, _machine, _peaks if gpu else _no_peaks)


def _gpu(torch: Any) -> str:
    return str(lazy.module("device").arch_of(torch.empty(0, device="cuda")))


def _processor() -> str:
    cpu: Any = lazy.module("cpu")
    if not cpu.available():
        hint = "install a C++ compiler (g++): the kernels for a processor are built at their first use"
        raise UsageError("there is no GPU here, and the C++ kernels cannot be built", hint)
    return str(cpu.instruction_set())


def _machine(problem: Problem) -> Machine:
    facts, op = lazy.module("machine"), problem.op
    return Machine(facts.device(op), facts.driver(op), facts.triton_version(op), facts.runtime(op))


def _no_peaks(op: str) -> object:
    """Of a processor no catalog knows the peaks: bounds that are met by nothing."""
    del op
    return lazy.module("autotune").Peaks(_MOST, _MOST)


def _peaks(op: str) -> object:
    """Datasheet rates with room above, so that no bound is too high; those of weak sources count as none."""
    from vllm_advisor.probe.detect import detect

    gpu = detect().gpu
    rates = {"w4a16": gpu.tflops_bf16, "w4a4": gpu.tflops_fp4 or gpu.tflops_fp8}
    tflops = rates.get(op.partition(".")[2], gpu.tflops_fp8) or gpu.tflops_bf16
    bytes_s = _MOST if "bandwidth" in gpu.unverified else gpu.bandwidth * _ABOVE
    flops_s = _MOST if any(name.startswith("tflops") for name in gpu.unverified) else tflops * 1e12 * _ABOVE
    return lazy.module("autotune").Peaks(bytes_s, flops_s)

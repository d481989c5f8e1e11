"""Builds any kernel for any target with no GPU, and reads back what the compiler did: registers, spills, instruction.

    python -m vllm_mx_kernels.compile --all             # the table of docs/kernels.md
    python -m vllm_mx_kernels.compile --op mxfp4.w4a16 --target sm90

Spills are those of `ptxas -v` on the very PTX (a cubin's stack size says something else) and of the AMD compiler's
own notes. A build that takes longer than its limit is stopped: some tiles keep an assembler busy for minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mx_kernels import build_notes
from vllm_mx_kernels.build_page import is_current, page, table
from vllm_mx_kernels.launch import Launch
from vllm_mx_kernels.targets import TARGETS, Target


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from typing import Self


class Case(NamedTuple):
    """One kernel at one launch: `kernel` a JIT function, `pointers` the element type of each pointer argument.

    `constants` are the constexpr arguments but for those of `launch`, `scalars` the types of numbers that are no i32.
    Pointers and i32 are taken to be multiples of 16, as in a model. `needs` is the instruction (a regular expression)
    that the build has to contain, "" for none.
    """

    name: str
    kernel: Any
    pointers: Mapping[str, str]
    constants: Mapping[str, Any]
    launch: Launch
    needs: str = ""
    scalars: Mapping[str, str] = {}


class Build(NamedTuple):
    """What came of a case. `failure`: why it did not build, or what it lacks ("" if neither). `spills` in bytes.

    `shared` is in bytes, `tensor_memory` in columns, `occupancy` in resident warps of a multiprocessor or SIMD,
    `registers` are those of one thread (VGPRs on ROCm).
    """

    case: str
    target: str
    launch: Launch
    seconds: float
    registers: int = 0
    spills: int = 0
    shared: int = 0
    tensor_memory: int = 0
    occupancy: int = 0
    instruction: str = ""
    failure: str = ""

    @property
    def sound(self) -> bool:
        """Built, without spills and within the target's shared memory."""
        return not self.failure and self.spills == 0 and self.shared <= TARGETS[self.target].shared_block


def build(case: Case, target: Target) -> Build:
    """Compile here and now. Whatever the compiler raises becomes `failure`, in one line, and so does a lacking `needs`.

    TRITON_INTERPRET must not be set: `Builder` takes care of that in a process of its own.
    """
    start = time.perf_counter()
    try:
        compiled = _compiled(case, target)
    except Exception as error:  # noqa: BLE001  a compiler may raise anything
        return Build(case.name, target.name, case.launch, time.perf_counter() - start, failure=_line(error))
    seconds = time.perf_counter() - start
    read = build_notes.cuda if target.backend == "cuda" else build_notes.hip
    return _with_need(read(Build(case.name, target.name, case.launch, seconds), compiled, target), case.needs)


def _line(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1] if str(cause).strip() else ''}"


def _compiled(case: Case, target: Target) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = case.kernel.arg_names
    constants = {**case.constants, **{n: v for n, v in case.launch.constants().items() if n in names}}
    signature = {n: _kind(n, constants, case) for n in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n not in {**constants, **case.scalars}}
    places = {(names.index(n),): value for n, value in constants.items()}
    source = ASTSource(case.kernel, signature, places, aligned)
    options = {"num_warps": case.launch.num_warps, "num_stages": case.launch.num_stages}
    return triton.compile(source, target=GPUTarget(target.backend, target.arch, target.warp_size), options=options)


def _kind(name: str, constants: Mapping[str, Any], case: Case) -> str:
    if name in constants:
        return "constexpr"
    return f"*{case.pointers[name]}" if name in case.pointers else case.scalars.get(name, "i32")


def cases(target: Target) -> Iterator[Case]:
    """Every op of this package at its default launches on a target."""
    from vllm_mx_kernels import catalog

    yield from catalog.cases(target)


class Builder:
    """A process that builds, so that a build can be stopped. Use as a context; one build at a time."""

    def __init__(self, limit_s: float = 120.0) -> None:
        self.limit_s = limit_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def build(self, name: str, launch: Launch | None, target: Target) -> Build:
        """The case of that name on a target, at `launch` in place of its own if given."""
        pipe = self._pipe or self._start()
        pipe.send((name, launch, target.name))
        try:
            if pipe.poll(self.limit_s):
                return pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, ConnectionError):
            self._stop()
            return Build(name, target.name, launch or Launch(), 0.0, failure="the compiler died")
        self._stop()
        failure = f"stopped after {self.limit_s:g} s"
        return Build(name, target.name, launch or Launch(), self.limit_s, failure=failure)

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe

    def _stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def build_all(
    wanted: Sequence[tuple[str, Launch | None, Target]],
    limit_s: float,
    jobs: int,
    say: Callable[[Build], None] = lambda _: None,
) -> tuple[Build, ...]:
    """Each (case, launch, target) as `Builder.build` takes them, in `jobs` processes; the builds in the same order.

    `say` is told of each build that ends, by the thread that waited for it.
    """
    with ExitStack() as stack:
        free: SimpleQueue[Builder] = SimpleQueue()
        for _ in range(max(1, jobs)):
            free.put(stack.enter_context(Builder(limit_s)))

        def one(asked: tuple[str, Launch | None, Target]) -> Build:
            builder = free.get()
            try:
                built = builder.build(*asked)
            finally:
                free.put(builder)
            say(built)
            return built

        return tuple(stack.enter_context(ThreadPoolExecutor(max(1, jobs))).map(one, wanted))


def _serve(pipe: Connection) -> None:
    os.environ.pop("TRITON_INTERPRET", None)  # interpreted functions do not compile
    while True:
        try:
            name, launch, target_name = pipe.recv()
        except EOFError:
            return
        case = _named(name, target_name)
        pipe.send(build(case._replace(launch=launch) if launch else case, TARGETS[target_name]))


@cache
def _known(target_name: str) -> dict[str, Case]:
    return {case.name: case for case in cases(TARGETS[target_name])}


def _named(name: str, target_name: str) -> Case:
    return _known(target_name)[name]


def main(argv: list[str] | None = None) -> int:
    """Print the table of what was asked for; 1 if a build is not sound, or the page of `--check` is not current."""
    parser = argparse.ArgumentParser(prog="python -m vllm_mx_kernels.compile", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--all", action="store_true", help="every op on every target")
    parser.add_argument("--op", default="", help="part of an op's name")
    parser.add_argument("--target", action="append", choices=TARGETS, help="one target, may be repeated")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one build")
    parser.add_argument("--jobs", type=int, default=_processors(), help="builds at once")
    parser.add_argument("--check", type=Path, metavar="PAGE", help="build all and compare with this page")
    asked = parser.parse_args(argv)
    if not (asked.all or asked.op or asked.target or asked.check):
        parser.error("name what to build: --all, --op, --target or --check")
    targets = [TARGETS[name] for name in asked.target or TARGETS]
    wanted = [(case.name, None, target) for target in targets for case in cases(target) if asked.op in case.name]
    found = build_all(wanted, asked.limit, asked.jobs, _progress)
    sound = all(b.sound for b in found)
    if asked.check:
        return 0 if is_current(asked.check, page(found)) and sound else 1
    sys.stdout.write(page(found) if asked.all else table(found))
    return 0 if sound else 1


def _processors() -> int:
    """As many builds at once; 16 at most, for each process takes about 400 MB of memory."""
    return min(16, len(os.sched_getaffinity(0)))


def _with_need(built: Build, needs: str) -> Build:
    if built.failure or not needs or re.search(needs, built.instruction):
        return built
    return built._replace(failure=f"{built.instruction or 'no matrix instruction'} where {needs} was to be")


def _progress(built: Build) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{built.case} {built.target} {built.seconds:.1f} s\n")


if __name__ == "__main__":
    sys.exit(main())

"""The timer of vLLM's fused experts: a child in vLLM's environment that stays up for one problem.

Decision: the tuner never imports vLLM. What is timed is vLLM's own `fused_experts` with its own override of the tiles,
as whole launches in a graph over rotated inputs; a candidate must agree with the result under vLLM's default.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from vllm_advisor.errors import EngineError
from vllm_advisor.launch.log import last_words, scrub, tail
from vllm_advisor.vllm import oracle
from vllm_tuner.vllm_configs import asking


if TYPE_CHECKING:
    from vllm_tuner.vllm_configs.defaults import Config
    from vllm_tuner.vllm_configs.shapes import Shape

_LOG = "timer.log"


class Unfit(Exception):
    """Tiles that do not run on this device: too much shared memory, no such instruction, a compiler's refusal."""


class Timer(Protocol):
    """What a tuner needs: times in µs. Each raises Unfit for tiles that do not run."""

    def default(self, batch: int) -> Config: ...

    def error(self, batch: int, config: Config) -> float: ...

    def time(self, batch: int, config: Config, repeats: int, warmup: int) -> list[float]: ...

    def pair(self, batch: int, a: Config, b: Config, rounds: int) -> list[tuple[float, float]]: ...


class Session:
    """One child, one shape. Entering imports vLLM and makes the weights; raises EngineError where that cannot be.

    `scheme` as in `Quantization.scheme`, where the shape alone does not tell how weights are scaled. `interpret`:
    without a GPU, under Triton's interpreter: only `error` answers then. `dry`: arguments are built and described,
    nothing runs.
    """

    def __init__(
        self, python: Path, shape: Shape, scheme: str = "", *, interpret: bool = False, dry: bool = False,
        seed: int = 0, allowed_s: float = 600.0, env: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        self.python = python
        self.vllm = self.device = self.triton = ""
        self._interpret, self._allowed, self._env = interpret, allowed_s, env
        self._first = {
            "oracle": str(oracle.CHILD.parent), "shape": shape._asdict(), "interpret": interpret, "dry": dry,
            "seed": seed, "scheme": scheme,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._unread = b""

    def __enter__(self) -> Self:
        try:
            hello = self._start()
        except BaseException:
            self.stop()
            raise
        self.vllm, self.device, self.triton = (str(hello.get(k, "")) for k in ("vllm", "device", "triton"))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def default(self, batch: int) -> Config:
        """The tiles that vLLM itself would take for a batch."""
        return dict(self._ask(do="default", batch=batch)["config"])

    def error(self, batch: int, config: Config) -> float:
        """The largest difference from the result under vLLM's default, as a share of the largest result."""
        return float(self._ask(do="correct", batch=batch, config=config, interpret=self._interpret)["error"])

    def time(self, batch: int, config: Config, repeats: int, warmup: int) -> list[float]:
        """Microseconds of one launch, measured `repeats` times after `warmup` that do not count."""
        return list(self._ask(do="time", batch=batch, config=config, repeats=repeats, warmup=warmup)["us"])

    def pair(self, batch: int, a: Config, b: Config, rounds: int) -> list[tuple[float, float]]:
        """Both in turn, as (a, b) of each round."""
        found = self._ask(do="pair", batch=batch, a=a, b=b, rounds=rounds)["pairs"]
        return [(float(one), float(other)) for one, other in found]

    def describe(self, shape: Shape, scheme: str = "") -> dict[str, Any]:
        """What the child builds for a shape: tensors, dtype and block in vLLM's words."""
        return self._ask(do="describe", shape=shape._asdict(), scheme=scheme)

    def stop(self) -> None:
        """End the child and what it started."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    if stream:
                        stream.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> dict[str, Any]:
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-tuner-timer-")
        with (Path(self._folder.name) / _LOG).open("wb") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the interpreter that the user named
                    [self.python.absolute(), asking.CHILD / "timer.py"], cwd=self._folder.name,
                    env=asking.environment(self._folder.name, dict(self._env)), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise EngineError(f"{self.python} does not run: {error.strerror}", asking.HINT) from error
        hello = self._exchange(self._first)
        if "failed" in hello:
            raise asking.failed(self.python, hello["failed"])
        return hello

    def _ask(self, **order: Any) -> dict[str, Any]:
        answer = self._exchange(order)
        if "raised" in answer:
            raised = answer["raised"]
            raise Unfit(f"{raised.get('error')}: {' '.join(str(raised.get('text')).split())[:200]}")
        return answer

    def _exchange(self, value: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise EngineError("this timer was never started")
        try:
            process.stdin.write(json.dumps(value).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(self._line(process))
        except (OSError, ValueError) as error:
            raise EngineError(f"the process that times vLLM's kernel died: {self._words()}", asking.HINT) from error
        if not isinstance(answer, dict):
            raise EngineError(f"the process that times vLLM's kernel said {answer!r}")
        return answer

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """The next line; b"" at the end of the child's output."""
        if process.stdout is None:
            return b""
        end = time.monotonic() + self._allowed
        while b"\n" not in self._unread:
            if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise EngineError(f"vLLM was silent for {self._allowed:g} s: {self._words()}", "give it more time")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return b""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _words(self) -> str:
        if self._folder is None:
            return "it was stopped"
        return scrub(last_words(tail(Path(self._folder.name) / _LOG)))[:300]

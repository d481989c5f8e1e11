"""vLLM's own verdict: one warm child per device, in the environment of a vLLM, that answers commands line by line.

Decision: nothing of vLLM is imported here. The child fixes its device when it imports vLLM, so a device and its
environment variables are one process; a command then costs milliseconds (parser) to seconds (a model's layers).
The protocol is JSON lines, {"id": …} in both directions; stderr goes to a file in the run folder.
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
from typing import TYPE_CHECKING, Any, Self

from vllm_advisor.errors import EngineError
from vllm_advisor.vllm.oracle_verdict import Verdict, verdict


if TYPE_CHECKING:
    from vllm_advisor.vllm.oracle_device import StandIn

CHILD = Path(__file__).with_name("oracle_child") / "main.py"
_LOG = "oracle.log"
_SWEEP_S = 2.0
_NO_VLLM = "no vllm in this environment"  # oracle_child/device.py
# Kept from the caller's environment; tokens, proxies, PYTHONPATH and the home folder with its own tokens are not.
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
_FIXED = {
    "PYTHONSAFEPATH": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Otherwise FlashInfer asks the network for its kernels, and vLLM hides the backends that need them.
    "VLLM_HAS_FLASHINFER_CUBIN": "1",
}


class Oracle:
    """A child that lives as long as the `with` block.

    `env` holds the variables of the command (VLLM_…). `version`: the release that is asked for; another one that
    answers is an error. Entering imports vLLM, which takes 20 s to a minute. Raises EngineError with a hint for an
    environment without vLLM, a child that dies, says what is no answer, or is silent for longer than allowed.
    """

    def __init__(
        self,
        python: Path,
        device: StandIn,
        env: tuple[tuple[str, str], ...] = (),
        *,
        version: str | None = None,
        run_folder: Path | None = None,
        start_s: float = 600.0,
        answer_s: float = 600.0,
        child: Path = CHILD,
    ) -> None:
        self.python = python
        self.device = device
        self.env = env
        self.version = version
        self.vllm = ""
        self._folder = run_folder
        self._allowed = (start_s, answer_s)
        self._child = child
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._unread = b""
        self._number = 0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Where the child runs and its log lies."""
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="vllm-advisor-oracle-")
            self._folder = Path(self._temporary.name)
        return self._folder

    def ask(self, argv: tuple[str, ...], *, layers: bool = True) -> Verdict:
        """VLLM's verdict on `vllm serve MODEL flags…`, MODEL being a folder with a config.json.

        `layers`: build the model too, without weights, and say which kernels its layers get.
        """
        answer = self.raw(argv, layers=layers)
        try:
            return verdict(answer)
        except (AttributeError, KeyError, TypeError) as error:
            raise self._error(f"an answer that cannot be read ({error!r})") from error

    def raw(self, argv: tuple[str, ...], *, layers: bool = True) -> dict[str, Any]:
        """The same as the child said it: JSON that `oracle_verdict.verdict` reads, to be kept in a file."""
        words = list(argv[1:] if argv[:1] == ("vllm",) else argv)
        return self._exchange({"argv": words, "layers": layers}, self._allowed[1])

    def stop(self) -> None:
        """End the child and all that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            _await_end(self._process.pid)
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if stream:
                        stream.close()
            self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary, self._folder = None, None

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOG).open("wb") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603  the interpreter that the user named
                    [self.python.absolute(), self._child],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                hint = "--vllm-python takes the Python of the environment that vLLM is installed in"
                raise EngineError(f"{self.python} does not run: {error.strerror}", hint) from error
        hello = self._exchange({"device": self.device._asdict()}, self._allowed[0])
        self.vllm = str(hello.get("vllm", ""))
        self._check_version()

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return kept | {"HOME": str(self.folder), "VLLM_CACHE_ROOT": _cache()} | dict(self.env) | _FIXED

    def _check_version(self) -> None:
        found = self.vllm.partition("+")[0]
        if self.version and found != self.version:
            hint = f"`uv pip install vllm=={self.version}` there, or ask about --vllm {found}"
            raise EngineError(f"vLLM {self.version} is asked about, {self.python} has {self.vllm}", hint)

    def _exchange(self, question: dict[str, Any], allowed_s: float) -> dict[str, Any]:
        """Send one line, wait for its answer."""
        self._number += 1
        process = self._process
        if process is None or process.stdin is None:
            raise EngineError("this oracle was never started")
        try:
            process.stdin.write(json.dumps({"id": self._number, **question}).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._dead() from error
        answer = self._parsed(self._line(allowed_s))
        if "failed" in answer:
            raise self._failed(answer["failed"])
        return answer

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("id") != self._number:
            raise self._error(f"something that is no answer: {line[:80].decode(errors='replace')!r}")
        return answer

    def _line(self, allowed_s: float) -> bytes:
        """The next line of the child's; raises EngineError at the end of its output or of the time."""
        process = self._process
        if process is None or process.stdout is None:
            raise EngineError("this oracle was never started")
        end = time.monotonic() + allowed_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise EngineError(f"vLLM was silent for {allowed_s:g} s: {self._last_words()}", "give it more time")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise self._dead()
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _dead(self) -> EngineError:
        return EngineError(f"the process that asks vLLM died: {self._last_words()}", self._hint())

    def _error(self, what: str) -> EngineError:
        return EngineError(f"the process that asks vLLM said {what}", self._hint())

    def _failed(self, failure: dict[str, str]) -> EngineError:
        """What stopped the child before any command was asked."""
        error, text = failure.get("error", ""), failure.get("text", "")
        if error == "ModuleNotFoundError" and text == _NO_VLLM:
            hint = "--vllm-python takes the Python of an environment with vLLM: `uv pip install vllm`"
            return EngineError(f"no vllm in the environment of {self.python}", hint)
        return EngineError(f"vLLM could not be asked: {error}: {' '.join(text.split())[:300]}", self._hint())

    def _last_words(self) -> str:
        from vllm_advisor.launch.log import last_words, scrub, tail  # noqa: PLC0415  only when something went wrong

        return scrub(last_words(tail(self.folder / _LOG)))[:300]

    def _hint(self) -> str:
        kind = {"nvidia": "the CUDA build", "amd": "the CUDA build (it plays ROCm too)"}.get(
            self.device.vendor, "a build"
        )
        return f"is it {kind} of vLLM that --vllm-python has, and whole? its own `python -c 'import vllm'` says"


def _await_end(group: int) -> None:
    """Wait until the killed group holds nothing any more."""
    end = time.monotonic() + _SWEEP_S
    while _runs(group) and time.monotonic() < end:
        time.sleep(0.01)


def _runs(group: int) -> bool:
    """Whether a process of the group is more than a zombie; False where there is no /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, leader = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
            if int(leader) == group and state not in ("Z", "X"):
                return True
    return False


def _cache() -> str:
    """VLLM's cache of what it found out about model classes: kept between runs, never the user's own."""
    import platformdirs  # noqa: PLC0415

    return str(platformdirs.user_cache_path("vllm-advisor") / "oracle")

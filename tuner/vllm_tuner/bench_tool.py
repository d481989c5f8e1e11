"""`vllm bench serve` as the measuring tool: the same requests as our own client sends, and the same figures of them.

The tool gets a trace (its dataset `timed_trace`, or `custom` for texts) with each request's own lengths and time, so
that both tools do equal work. Chunks of a prompt are named by their content: what requests share, they share there too.
Figures are ours, of the times that it saves for each request; that they equal its own is a test. Up to 0.27 it sends a
trace's prompts as text, whose length the server may count a few tokens differently; what it counted is what counts.
Flags: benchmarks/serve.py and benchmarks/datasets/datasets.py, all of them there from 0.24.0 to 0.33.0.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.launch.arguments import has_cli
from vllm_advisor.launch.log import last_words, scrub, tail
from vllm_tuner.load import Answer, Played
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vllm_advisor.workload import Sla
    from vllm_tuner.load import Request, Target

AUTO, VLLM, OWN = CHOICES = ("auto", "vllm", "own")
NAMES = {VLLM: "vllm bench serve", OWN: "vllm_tuner.load"}
_CHUNK = 16  # tokens that one name of a trace stands for (--timed-trace-chunk-hash-size)
# Where the distribution is not called vllm, its command line does not start, and the benchmark's own functions do.
_PROGRAM = (
    "from vllm.benchmarks.serve import add_cli_args, main; "
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser; "
    "parser = Parser(); add_cli_args(parser); main(parser.parse_args())"
)
_CLI = "vllm.entrypoints.cli.main"
_LOCAL = "127.0.0.1,localhost"


class ToolFailed(Exception):
    """The tool itself did not work: it is not there, it lacks a part, or its result cannot be read."""


def _on_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class Tool:
    """Which tool measures, one for a whole search: figures of two tools are never compared.

    `auto` begins with vLLM's and falls back once to our own, `told` why; `vllm` does not fall back.
    """

    def __init__(self, choice: str = AUTO, told: Callable[[str], None] = _on_stderr) -> None:
        if choice not in CHOICES:
            raise UsageError(f"no measuring tool {choice!r}", f"one of {', '.join(CHOICES)}")
        self.choice = choice
        self.using = OWN if choice == OWN else VLLM
        self._told = told

    @property
    def name(self) -> str:
        """As a Measurement says it."""
        return NAMES[self.using]

    def fall_back(self, why: ToolFailed) -> None:
        """From now on our own client. Raises EngineError where vLLM's tool was asked for by name."""
        if self.choice == VLLM:
            raise EngineError(f"vllm bench serve does not work: {why}", "--tool own measures without it") from why
        self.using = OWN
        self._told(f"vllm bench serve does not work here ({why}); our own client measures instead")


class Job(NamedTuple):
    """One run of the tool. `python` None: the `vllm` on the PATH; `tokenizer`: the checkpoint, for its vocabulary."""

    python: Path | None
    target: Target
    tokenizer: str
    folder: Path
    seed: int

    def play(
        self, requests: Sequence[Request], *, concurrency: int | None, sla: Sla, end: float | None = None
    ) -> tuple[Played, dict[str, Any]]:
        """All answers, and the document that the tool wrote. Raises ToolFailed, and BudgetSpent when `end` is first."""
        texts = not isinstance(requests[0].prompt, tuple)
        trace = self.folder / f"bench-{self.seed}.requests.jsonl"
        trace.write_text("".join(map(_text if texts else _row, requests)), encoding="utf-8")
        argv = [*_start(self.python), *self._arguments(trace, len(requests), texts=texts)]
        argv += _limits(concurrency, sla)
        result = self.folder / f"bench-{self.seed}.json"
        result.unlink(missing_ok=True)
        try:
            self._run(argv, end)
            return _result(result)
        finally:
            trace.unlink(missing_ok=True)

    def _arguments(self, trace: Path, number: int, *, texts: bool) -> list[str]:
        dataset = ["custom", "--skip-chat-template", "--disable-shuffle"] if texts else ["timed_trace"]
        sizes = [] if texts else ["--timed-trace-chunk-hash-size", str(_CHUNK)]
        return [
            *("--backend", "vllm", "--base-url", self.target.url, "--endpoint", "/v1/completions"),
            *("--model", self.target.model, "--tokenizer", self.tokenizer, "--temperature", "0", "--ignore-eos"),
            *("--dataset-name", *dataset, "--dataset-path", str(trace), *sizes, "--num-prompts", str(number)),
            *("--seed", str(self.seed), "--num-warmups", "0", "--ready-check-timeout-sec", "0", "--disable-tqdm"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99"),
            *("--save-result", "--save-detailed", "--result-dir", str(self.folder)),
            *("--result-filename", f"bench-{self.seed}.json"),
        ]

    def _run(self, argv: list[str], end: float | None) -> None:
        log = self.folder / f"bench-{self.seed}.log"
        with log.open("wb") as written:
            try:
                child = subprocess.Popen(  # noqa: S603 - vLLM's own tool
                    argv,
                    cwd=self.folder,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=written,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ToolFailed(f"{argv[0]}: {error.strerror}") from error
            try:
                code = child.wait(None if end is None else max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise BudgetSpent from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if code != 0:
            raise ToolFailed(scrub(last_words(tail(log)), os.environ) or f"it ended with {code}")


def _start(python: Path | None) -> list[str]:
    """What starts it: the way that this environment can."""
    if python is None:
        return ["vllm", "bench", "serve"]
    return [str(python), "-m", _CLI, "bench", "serve"] if has_cli(python) else [str(python), "-c", _PROGRAM]


def _environment() -> dict[str, str]:
    """Prompts are drawn by Python's hash of a chunk's name, and a proxy must not be asked for this machine's server."""
    direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), _LOCAL)))
    fixed = {"PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0", "NO_PROXY": direct, "no_proxy": direct}
    kept = {name: value for name, value in os.environ.items() if name != "VLLM_USE_RUST_BENCH"}  # another program
    return kept | fixed


def _limits(concurrency: int | None, sla: Sla) -> list[str]:
    """What may be in flight, and the limits that make goodput."""
    goodput = [f"{name}:{limit:g}" for name, limit in (("ttft", sla.ttft_ms), ("tpot", sla.tpot_ms)) if limit]
    most = ["--max-concurrency", str(concurrency)] if concurrency else []
    return [*most, *(["--goodput", *goodput] if goodput else [])]


def _row(request: Request) -> str:
    """One request of a timed trace: the contents of its prompt's chunks as numbers."""
    chunks = [request.prompt[i : i + _CHUNK] for i in range(0, len(request.prompt), _CHUNK)]
    names = [zlib.crc32(array("q", chunk).tobytes()) for chunk in chunks if isinstance(chunk, tuple)]
    lengths = {"input_length": request.input_tokens, "output_length": request.output_tokens}
    return json.dumps({"timestamp": request.at, **lengths, "hash_ids": names}) + "\n"


def _text(request: Request) -> str:
    return json.dumps({"prompt": request.prompt, "output_tokens": request.output_tokens}) + "\n"


def _result(path: Path) -> tuple[Played, dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return played(document), document
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed(f"its result cannot be read: {type(error).__name__}: {error}") from error


def played(document: dict[str, Any]) -> Played:
    """The answers of a detailed result. Raises KeyError, ValueError, TypeError for what is none.

    An answer's latency is the time of its last token (endpoint_request_func.py: most_recent_timestamp - st).
    """
    count = len(document["ttfts"])
    starts = document.get("start_times") or [0.0] * count
    columns = (starts, *(document[name] for name in ("ttfts", "itls", "input_lens", "output_lens", "errors")))
    answers = (
        Answer(start, ttft, tuple(itls), ttft + sum(itls), taken, given, error=error or "")
        for start, ttft, itls, taken, given, error in zip(*columns, strict=True)
    )
    return Played(tuple(answers), float(document["duration"]))

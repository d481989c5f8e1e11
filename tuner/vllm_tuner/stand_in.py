"""A stand-in for vLLM with a speed: a real process with real HTTP, so that a search has something to find.

It takes the flags of `vllm serve`, answers /health, /v1/models, /v1/completions (streaming), /tokenize and /metrics,
and needs nothing but the standard library. Its laws, in seconds: a prompt costs STEP for each max_num_batched_tokens
of it; a step of decoding costs STEP × (1 + (running / KNEE) ⁴) for all who run, at most max_num_seqs. So too few
sequences wait in line, and too many slow each other down: the best limit is near KNEE.
STAND_IN_LIMIT tokens in a step is the most that it starts with: above, it dies as a GPU without memory does.
Scored prompts (`prompt_logprobs`) get the same two log-probabilities at every token, and tasks no number. With
--quantization it is STAND_IN_SHIFT nats (0) off, and its steps take half as long.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any


STEP, KNEE = 4e-3, 4
LIMIT, SHIFT = "STAND_IN_LIMIT", "STAND_IN_SHIFT"
# Names a file that says how /metrics misbehaves now: `garbage`, `error`, `hang`, `cut`; empty or absent: it does not.
FAULT = "STAND_IN_FAULT"
_NO_MEMORY = (
    '(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1180]   File "gpu_model_runner.py", line 1, in profile_run\n'
    "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1180] EngineCore failed to start.\n"
    "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1180] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.11 GiB is free."
)


def install(folder: Path) -> Path:
    """Write the stand-in as `vllm` into a folder, to be put in front of the PATH; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "vllm"
    here = Path(__file__).parents[1]
    script.write_text(
        f"#!{sys.executable} -S\nimport runpy, sys\nsys.path.append({str(here)!r})\n"
        f"runpy.run_path({str(Path(__file__))!r}, run_name='__main__')\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return folder


class Histogram:
    """Observations by bound, as Prometheus writes them."""

    def __init__(self, *bounds: float) -> None:
        self.bounds, self.counts = (*bounds, math.inf), [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.total += value
        for place, bound in enumerate(self.bounds):
            self.counts[place] += value <= bound

    def text(self, name: str, label: str) -> str:
        """Its lines."""
        lines = [
            f'vllm:{name}_bucket{{{label},le="{"+Inf" if bound == math.inf else f"{bound:g}"}"}} {count}.0\n'
            for bound, count in zip(self.bounds, self.counts, strict=True)
        ]
        ends = f"vllm:{name}_sum{{{label}}} {self.total:.6f}\nvllm:{name}_count{{{label}}} {self.counts[-1]}.0\n"
        return "".join(lines) + ends


_TOKENS = tuple(float(m * 10**e) for e in range(4) for m in (1, 2, 5))
_SECONDS = tuple(float(f"{m}e{e}") for e in (-3, -2, -1, 0) for m in (1, 2, 5))


class Engine:
    """Who runs, and how long a step takes them."""

    def __init__(self, seqs: int, tokens: int, *, quantized: bool = False) -> None:
        self.seqs, self.tokens = seqs, tokens
        self.step_s = STEP / 2 if quantized else STEP
        self.shift = float(os.environ.get(SHIFT, "0")) if quantized else 0.0
        self.running = self.waiting = self.prompts = self.generated = 0
        self.ended = {
            "request_prompt_tokens": Histogram(*_TOKENS),
            "request_generation_tokens": Histogram(*_TOKENS),
            "time_to_first_token_seconds": Histogram(*_SECONDS),
            "request_time_per_output_token_seconds": Histogram(*_SECONDS),
            "request_queue_time_seconds": Histogram(*_SECONDS),
            "e2e_request_latency_seconds": Histogram(*_SECONDS),
        }
        self._places = asyncio.Semaphore(seqs)
        self._prefill = asyncio.Lock()

    async def enter(self, prompt: int) -> float:
        """A place in the batch, then the prompt, one at a time; when the place was got."""
        self.waiting += 1
        await self._places.acquire()
        self.waiting -= 1
        self.running += 1
        entered = time.monotonic()
        async with self._prefill:
            await asyncio.sleep(-(-prompt // self.tokens) * self.step_s)
        self.prompts += prompt
        return entered

    async def step(self) -> None:
        """One token for each who runs."""
        await asyncio.sleep(self.step_s * (1 + (self.running / KNEE) ** 4))
        self.generated += 1

    def leave(self) -> None:
        """The place is free again."""
        self.running -= 1
        self._places.release()

    def metrics(self) -> str:
        """The counters, as vLLM writes them."""
        label = '{engine="0",model_name="stand-in"}'
        counted = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "num_preemptions_total": 0,
            "prompt_tokens_total": self.prompts,
            "generation_tokens_total": self.generated,
            "request_success_total": self.ended["request_prompt_tokens"].counts[-1],
        }
        lines = "".join(f"vllm:{name}{label} {value}.0\n" for name, value in counted.items())
        return lines + "".join(held.text(name, label[1:-1]) for name, held in self.ended.items())

    def finish(self, prompt: int, tokens: int, times: tuple[float, float, float, float]) -> None:
        """A request ended; `times`: it came, was let in, gave its first token and its last."""
        came, entered, first, last = times
        seen = {
            "request_prompt_tokens": prompt,
            "request_generation_tokens": tokens,
            "time_to_first_token_seconds": first - came,
            "request_time_per_output_token_seconds": (last - first) / max(1, tokens - 1),
            "request_queue_time_seconds": entered - came,
            "e2e_request_latency_seconds": last - came,
        }
        for name, value in seen.items():
            self.ended[name].observe(value)


def _tokens(text: str) -> dict[str, Any]:
    """A token a word, its number from its letters."""
    words = text.split()
    return {"count": len(words), "tokens": [sum(word.encode()) % 500 for word in words]}


def _answer(body: dict[str, Any], shift: float) -> dict[str, Any]:
    """A choice that is not streamed: the likeliest token is the prompt's own, at 0.6 or `shift` nats below."""
    if "prompt_logprobs" not in body:
        return {"text": "as was said before"}
    scored = (
        {str(t): {"logprob": math.log(0.6) - shift}, "501": {"logprob": math.log(0.3)}} for t in body["prompt"][1:]
    )
    return {"text": "x", "prompt_logprobs": [None, *scored]}


async def _faulty(text: str) -> tuple[str, bool]:
    """The page as the file of faults wants it, and whether with status 200."""
    try:
        fault = Path(os.environ[FAULT]).read_text(encoding="ascii").strip()  # noqa: ASYNC240 - one word
    except OSError:
        return text, True
    if fault == "hang":
        await asyncio.sleep(30)
    pages = {"garbage": "vllm:num_requests_running NaN\n<html>{}\n" * 20, "cut": text[: len(text) // 2 - 3]}
    return pages.get(fault, text), fault != "error"


class Server:
    """The HTTP around an engine: one request a connection."""

    def __init__(self, engine: Engine, model: str) -> None:
        self.engine, self.model = engine, model

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, answer it, close."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next((int(x.split(":")[1]) for x in head.splitlines() if x.lower().startswith("content-len")), 0)
            body = await reader.readexactly(length)
            await self._route(head.split()[1], json.loads(body) if body else {}, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    async def _route(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/v1/completions" and body.get("model") == self.model and body.get("stream"):
            await self._complete(body, writer)
            return
        answers = {
            "/health": "",
            "/v1/models": json.dumps({"data": [{"id": self.model, "max_model_len": 4096}]}),
            "/metrics": self.engine.metrics(),
            "/tokenize": json.dumps(_tokens(str(body.get("prompt", "")))),
            "/v1/completions": json.dumps({"choices": [_answer(body, self.engine.shift)]}),
        }
        known = path in answers and body.get("model", self.model) == self.model
        text = answers[path] if known else json.dumps({"error": "not found"})
        if path == "/metrics" and FAULT in os.environ:
            text, known = await _faulty(text)
        writer.write(f"HTTP/1.1 {'200 OK' if known else '404 Not Found'}\r\nContent-Length: {len(text)}\r\n"
                     f"Connection: close\r\n\r\n{text}".encode())  # fmt: skip
        await writer.drain()

    async def _complete(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = len(body["prompt"] if isinstance(body["prompt"], list) else body["prompt"].split())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        came = time.monotonic()
        entered = await self.engine.enter(prompt)
        first = last = entered
        try:
            for number in range(body["max_tokens"]):
                await self.engine.step()
                last = time.monotonic()
                first = first if number else last
                writer.write(b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n')
                await writer.drain()
        finally:
            self.engine.leave()
        self.engine.finish(prompt, body["max_tokens"], (came, entered, first, last))
        usage = {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}
        writer.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
        await writer.drain()


def _value(argv: list[str], name: str, default: str) -> str:
    return argv[argv.index(name) + 1] if name in argv else default


async def _with_parent() -> None:
    """End with the process that started this: a killed test leaves nothing behind."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.2)
    os._exit(1)


async def _main(argv: list[str]) -> None:
    if argv[:1] != ["serve"]:  # `vllm bench` without its packages ends like this
        sys.exit(f"vllm: error: argument subparser: invalid choice: {argv[0] if argv else ''!r}")
    tokens = int(_value(argv, "--max-num-batched-tokens", "8192"))
    if tokens > int(os.environ.get(LIMIT, "1000000")):
        time.sleep(0.05)  # noqa: ASYNC251 - nothing else runs yet
        sys.exit(_NO_MEMORY)
    engine = Engine(int(_value(argv, "--max-num-seqs", "256")), tokens, quantized="--quantization" in argv)
    name = _value(argv, "--served-model-name", argv[1])
    server = await asyncio.start_server(Server(engine, name).handle, "127.0.0.1", int(_value(argv, "--port", "0")))
    if "STAND_IN_ORPHAN" not in os.environ:
        await asyncio.gather(server.serve_forever(), _with_parent())
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))

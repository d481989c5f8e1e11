"""A log of 50 MB takes under two seconds of processor time and 200 MB of memory, whatever it is full of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
SIZE = 50_000_000
# Another process, so that its memory is its own; the log comes through a pipe, as it does in use.
READ = """
import json, sys, time
from vllm_advisor.doctor import diagnosis
begun = time.process_time()
found = diagnosis.read(sys.stdin.buffer)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) / 1024  # getrusage counts what the parent had when it forked
print(json.dumps([time.process_time() - begun, peak, found.log.size]))
"""
ACCESS = '(APIServer pid=101) INFO:     10.0.0.{a}:{b} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STATS = (
    "(APIServer pid=101) INFO 11-29 08:03:11 [loggers.py:271] Engine 000: Avg prompt throughput: {b}.3 tokens/s, "
    "Avg generation throughput: {a}.1 tokens/s, Running: {a} reqs, Waiting: 0 reqs, GPU KV cache usage: {a}.4%"
)
REQUEST = (
    "(APIServer pid=101) INFO 11-29 08:03:11 [logger.py:40] Received request chatcmpl-{b}: prompt: 'In the {w} of "
    "{x} we find a model of memory, and the {x} says that {w} is out of all {x} memory of a device', params: S()"
)
WORDS = (
    "(APIServer pid=101) INFO 11-29 08:03:11 [plugin.py:40] In the {w} of {x} we find a model of memory, and the {x} "
    "says that {w} is out of all {x} memory of a device, and that no {w} of a {x} is what {w}s are made of: {b}"
)
ERROR = "(APIServer pid=101) ERROR 11-29 08:03:11 [serving.py:210] ValueError: request {w}{x} is not a {x}"
OOM = "(EngineCore pid=202) ERROR 11-29 08:03:11 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. {b}"


def grown(template: str) -> bytes:
    """A healthy start, then 50 MB of one kind of line, most of them different."""
    out = bytearray((LOGS / "healthy-0.33.log").read_bytes())
    number = 1
    while len(out) < SIZE:
        number = number * 1_103_515_245 % 2_147_483_647
        word = "".join(chr(97 + number // 26**i % 26) for i in range(6))
        out += template.format(a=number % 200, b=number, w=word, x=word[::-1]).encode() + b"\n"
    return bytes(out)


def restarting() -> bytes:
    """A container in a restart loop: 10 KB a start, a short one."""
    shard = b"(EngineCore pid=202) INFO 11-29 08:00:22 [weight_utils.py:1] Time spent on a shard: 0.123 seconds\n"
    one = (LOGS / "kv-too-small.log").read_bytes() + shard * 60
    return one * (SIZE // len(one) + 1)


FULL_OF = {
    "access": lambda: grown(ACCESS),
    "statistics": lambda: grown(STATS),
    "requests": lambda: grown(REQUEST),
    "words": lambda: grown(WORDS),
    "errors": lambda: grown(ERROR),
    "one error": lambda: grown(OOM),
    "restarts": restarting,
    "one line": lambda: b"error " * (SIZE // 6),
    "zeros": lambda: bytes(SIZE),
    "noise": lambda: (bytes(range(256)) * 40 + b"\n") * (SIZE // 10241),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FULL_OF)
def test_fifty_megabytes_are_read_in_two_seconds_and_200_mb(kind):
    """Processor time of reading alone, the least of three: neighbours only add; the peak of the whole process."""
    raw = FULL_OF[kind]()
    seconds, peaks_mb, sizes = zip(*(_read(raw) for _ in range(3)), strict=True)

    assert min(sizes) >= SIZE - 10_000
    assert min(seconds) < 2, f"{kind}: {min(seconds):.2f} s"
    assert max(peaks_mb) < 200, f"{kind}: {max(peaks_mb):.0f} MB"


def _read(raw: bytes) -> tuple[float, float, int]:
    done = subprocess.run([sys.executable, "-c", READ], input=raw, capture_output=True, check=True)
    return tuple(json.loads(done.stdout))

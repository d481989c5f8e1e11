"""The warm-up as a script of its own: plain Python, nothing to install, to run where the server runs.

It waits for /health, leaves a busy server alone, sends the steps one after another and stops when its time is up.
With a marker file a probe may call it again and again: the first call warms up, later ones only ask /health.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vllm_tuner.calibrate.warm_up import FIRST_ID, LAST_ID, PATHS


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tuner.calibrate.warm_up import Step

_SCRIPT = '''\
#!/usr/bin/env python3
"""Warm up a vLLM server, so that no first user waits for compilation. Made by `tuner calibrate warm-up --script`.

usage: warm_up.py [URL]       URL: the one below unless given
  WARM_UP_SECONDS  how long the requests may take (@BUDGET@)
  WARM_UP_WAIT     how long to wait for the server to be up (3600)
  WARM_UP_MARKER   a file that is written at the end; where it is there already, only /health is asked
  VLLM_API_KEY     the server's key, if it has one
Exit: 0 warm (or the time was up), 1 the server is not up or refused every request, 2 it is busy (0 with a marker).
"""

import concurrent.futures
import json
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request

URL = (sys.argv[1] if len(sys.argv) > 1 else @URL@).rstrip("/")
SECONDS = float(os.environ.get("WARM_UP_SECONDS", "@BUDGET@"))
WAIT = float(os.environ.get("WARM_UP_WAIT", "3600"))
MARKER = os.environ.get("WARM_UP_MARKER", "")
KEY = os.environ.get("VLLM_API_KEY", "")
# What a request says besides its prompt, by sampling path.
PATHS = json.loads(r"""@PATHS@""")
# Kind, name, and requests that are in flight together: [tokens in, tokens out, answers, path].
STEPS = json.loads(r"""@STEPS@""")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(path, content=None, timeout=10.0):
    headers = {"Content-Type": "application/json"}
    if KEY:
        headers["Authorization"] = "Bearer " + KEY
    data = None if content is None else json.dumps(content).encode()
    with OPENER.open(urllib.request.Request(URL + path, data, headers), timeout=timeout) as answer:
        return answer.read().decode("utf-8", "replace")


def is_up():
    try:
        ask("/health")
    except OSError:
        return False
    return True


def busy():
    """Requests that run or wait; 0 where the server does not count them."""
    try:
        text = ask("/metrics")
    except OSError:
        return 0.0
    pattern = r"^vllm:num_requests_(?:running|waiting)(?:\\{[^}]*\\})? ([0-9.eE+-]+)"
    return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


def send(model, row, end):
    tokens, answer, answers, path = row
    ids = [random.randint(@FIRST@, @LAST@) for _ in range(tokens)]
    content = {"model": model, "max_tokens": answer, "ignore_eos": True, **PATHS[path]}
    where = "/v1/completions"
    if path == "chat":
        where = "/v1/chat/completions"
        content["messages"] = [{"role": "user", "content": " ".join(map(str, ids[: tokens // 4]))}]
    else:
        content |= {"prompt": ids, "n": answers}
    try:
        ask(where, content, max(0.1, end - time.monotonic()))
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    except OSError as error:
        return str(error)
    return ""


def idle():
    """Our own last request may be counted for a moment."""
    last = time.monotonic() + 3.0
    while busy() and time.monotonic() < last:
        time.sleep(0.1)
    return not busy()


def wait():
    last = time.monotonic() + WAIT
    while not is_up():
        if time.monotonic() > last:
            sys.exit(f"{URL} does not answer /health")
        time.sleep(0.5)


def play(model, end):
    """Steps done, and how many of them were refused."""
    done = refused = 0
    for kind, name, rows in STEPS:
        if time.monotonic() >= end:
            break
        if not idle():
            print(f"{URL} is busy: the warm-up stops", file=sys.stderr)
            sys.exit(0 if MARKER else 2)  # to a probe, a server that serves is well
        with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
            errors = [said for said in pool.map(lambda row: send(model, row, end), rows) if said]
        done, refused = done + 1, refused + bool(errors)
        print(f"{kind} {name} {errors[0] if errors else ''}".rstrip(), file=sys.stderr)
    return done, refused


def main():
    if MARKER and os.path.exists(MARKER):
        sys.exit(0 if is_up() else 1)
    wait()
    begun = time.monotonic()
    model = json.loads(ask("/v1/models"))["data"][0]["id"]
    done, refused = play(model, begun + SECONDS)
    print(f"{done} of {len(STEPS)} steps, {refused} refused, {time.monotonic() - begun:.1f} s", file=sys.stderr)
    if done and done == refused:
        sys.exit(1)
    if MARKER:
        open(MARKER, "w").close()


if __name__ == "__main__":
    main()
'''


def script(steps: Sequence[Step], url: str, budget_s: float) -> str:
    """The script's text; the server's name is asked of the server itself."""
    rows = [[s.kind, s.name, [[a.input_tokens, a.output_tokens, a.answers, a.path] for a in s.asks]] for s in steps]
    listed = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
    used = {ask.path: PATHS[ask.path] for step in steps for ask in step.asks}
    values = {
        "@URL@": json.dumps(url.rstrip("/")), "@BUDGET@": f"{budget_s:g}", "@PATHS@": json.dumps(used),
        "@STEPS@": listed, "@FIRST@": str(FIRST_ID), "@LAST@": str(LAST_ID),
    }  # fmt: skip
    text = _SCRIPT
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text

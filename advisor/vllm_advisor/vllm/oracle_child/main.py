"""The child's loop: a JSON line in, a JSON line out, until stdin ends.

vLLM and its libraries print; so the descriptor of stdout is put aside for answers, and 1 becomes stderr. The first
line describes the device, since vLLM fixes it when it is imported; each later one asks about a command.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO


def package() -> None:
    """Make this folder importable as `oracle_child`, wherever it lies and with no folder added to the path."""
    init = Path(__file__).with_name("__init__.py")
    spec = importlib.util.spec_from_file_location("oracle_child", init, submodule_search_locations=[str(init.parent)])
    if spec is None or spec.loader is None:
        raise ImportError(init)
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle_child"] = module
    spec.loader.exec_module(module)


def aside() -> TextIO:
    """A stream to the old stdout; what anybody prints from here on goes to stderr."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def reply(answers: TextIO, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def failure(error: BaseException) -> dict[str, str]:
    return {"error": type(error).__name__, "text": str(error)[:2000]}


def main() -> None:
    package()
    answers = aside()
    stages = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if stages is None:
                device = importlib.import_module("oracle_child.device")
                hello = device.install(asked["device"])
                stages = importlib.import_module("oracle_child.stages")
                stages.prepare()
                reply(answers, {"id": asked["id"], **hello})
            else:
                reply(answers, {"id": asked["id"], **stages.verdict(asked["argv"], kinds=asked["layers"])})
        except Exception as error:  # noqa: BLE001  whatever vLLM raises is its answer
            reply(answers, {"id": asked["id"], "failed": failure(error)})
            if stages is None:
                return


if __name__ == "__main__":
    main()

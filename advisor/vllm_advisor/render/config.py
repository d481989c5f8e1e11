"""vLLM's own configuration file, for `vllm serve --config FILE`: a key is a flag without its dashes.

vLLM turns it back into arguments (utils/argparse_utils.py, load_config_file): true becomes the bare flag, a list
several values, a mapping JSON, all else its text. False is dropped by 0.24.0, so a `--no-x` is written `no-x: true`.
The file cannot carry environment variables; they are written as comments to export.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from vllm_advisor.render.document import dump
from vllm_advisor.render.job import one_line


if TYPE_CHECKING:
    from vllm_advisor.render.job import Flag, Job


def config(job: Job) -> str:
    """The YAML text; the model is a key like the others."""
    blocks = [f"# vllm serve --config THIS_FILE.yaml\n{_exports(job)}", dump({"model": job.checkpoint})]
    for flag in job.flags:
        why = job.why(flag.name) if job.annotate else ""
        blocks.append((f"# {one_line(why)}\n" if why else "") + dump({flag.name.lstrip("-"): value_of(flag)}))
    return "\n".join(job.heading()) + "\n" + "".join(blocks)


def value_of(flag: Flag) -> object:
    """The YAML value that vLLM turns back into exactly these arguments."""
    if not flag.values:
        return True
    if len(flag.values) > 1:
        return list(flag.values)
    return _typed(flag.values[0])


def _typed(text: str) -> object:
    """A number or mapping where its text comes back the same, else the text (`auto`, `128k`, `1e3`)."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return _mapping(text) if text.startswith("{") else text


def _mapping(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _exports(job: Job) -> str:
    lines = [f"# export {name}={shlex.quote(one_line(value))}\n" for name, value in job.command.env]
    return ("# first:\n" if lines else "") + "".join(lines)

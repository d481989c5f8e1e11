"""What a terminal takes: the command, the variables alone, and both as JSON for other programs."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.render.job import Job

# The same text to a shell, systemd, Compose and `docker run --env-file`, of which the last knows no quoting at all.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")


def command(job: Job) -> str:
    """`export` lines, then `vllm serve`, a flag a line; comments stand before: none can follow a continued line."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.command.env]
    lines = [shlex.join(job.command.argv[:3]), *(shlex.join((f.name, *f.values)) for f in job.flags)]
    return "\n".join([*job.comments(), *exports, " \\\n  ".join(lines)]) + "\n"


def env_file(job: Job) -> str:
    """`NAME=value` lines, readable by a shell's `source`, systemd's EnvironmentFile= and Compose's env_file."""
    nothing = [] if job.command.env else ["# this plan sets no environment variable"]
    lines = [f"{name}={_quoted(value)}" for name, value in job.command.env]
    why = [f"# {name}: {job.why(name)}" for name, _ in job.command.env if job.annotate and job.why(name)]
    return "\n".join([*job.heading(), *nothing, *why, *lines]) + "\n"


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


def as_json(job: Job) -> str:
    """`{"argv": […], "env": {…}}`, and `notes` when annotated."""
    value: dict[str, object] = {"argv": list(job.command.argv), "env": dict(job.command.env)}
    if job.annotate:
        value["notes"] = [{"of": of, "why": why} for of, why in job.command.notes]
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

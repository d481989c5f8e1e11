"""A systemd unit for one machine whose vLLM lies in an environment of its own.

It counts as started when /health answers, so that what comes after it finds a server; a service that dies while it
loads fails at once. Secrets come from a file that only root reads. Checked by `systemd-analyze verify` in the tests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor


if TYPE_CHECKING:
    from vllm_advisor.render.job import Job

VLLM_BIN = "/opt/vllm/bin"


def systemd(job: Job) -> str:
    """The unit's text. Raises UsageError for several nodes."""
    job.must_be_one_node("a systemd unit")
    install = [
        f"# /etc/systemd/system/{job.name}.service; then: systemctl enable --now {job.name}",
        f"# vLLM is expected in {VLLM_BIN}; HF_TOKEN=… and other secrets go to /etc/vllm/{job.name}.env, mode 600",
    ]
    sections = [_unit(job), _service(job), ["[Install]", "WantedBy=multi-user.target"]]
    body = "\n\n".join("\n".join(section) for section in sections)
    return "\n".join([*job.heading(), *install, *job.comments()]) + f"\n\n{body}\n"


def _unit(job: Job) -> list[str]:
    return [
        "[Unit]",
        f"Description=vLLM serving {_percent(job.checkpoint)}",
        "Wants=network-online.target",
        "After=network-online.target",
    ]


def _service(job: Job) -> list[str]:
    return [
        "[Service]",
        "Type=exec",
        "DynamicUser=yes",
        *(["SupplementaryGroups=video render"] if job.vendor is Vendor.AMD else []),
        f"StateDirectory={job.name}",
        f"WorkingDirectory=%S/{job.name}",
        *_environment(job),
        f"EnvironmentFile=-/etc/vllm/{job.name}.env",
        f"ExecStart=/usr/bin/env {' '.join(_quoted(argument) for argument in job.command.argv)}",
        f"ExecStartPost=/bin/sh -c {_quoted(_await_health(job))}",
        f"TimeoutStartSec={job.start_allowance_s}",
        # vLLM stops its own engine on SIGTERM; what is left of its processes after that is killed.
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "Restart=on-failure",
        "RestartSec=10",
    ]


def _environment(job: Job) -> list[str]:
    """The safe path keeps files of the working folder from standing in for vLLM's imports."""
    state = f"%S/{job.name}"
    fixed = [f"Environment=PATH={VLLM_BIN}:/usr/local/bin:/usr/bin:/bin", f"Environment=HOME={state}"]
    fixed.append("Environment=PYTHONSAFEPATH=1")
    return fixed + [f"Environment={_assignment(name, value)}" for name, value in job.command.env]


def _await_health(job: Job) -> str:
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{job.port}/health', timeout=5)"
    return f'until python3 -c "{ask}" 2>/dev/null; do kill -0 "$MAINPID" || exit 1; sleep 2; done'


def _assignment(name: str, value: str) -> str:
    """Dollars are literal in Environment=, per cent signs are not."""
    return f'"{_escaped(name + "=" + value)}"'


def _quoted(argument: str) -> str:
    """One argument of ExecStart=: bare where it can be, else in double quotes; `$` doubled, since it would expand."""
    plain = re.fullmatch(r"[A-Za-z0-9_@+=:,./-]+", argument)
    return argument if plain else f'"{_escaped(argument).replace("$", "$$")}"'


def _escaped(text: str) -> str:
    return _percent(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def _percent(text: str) -> str:
    return text.replace("%", "%%")

"""A Docker Compose file for one machine. Checked against the Compose specification's schema in the tests.

The port is open to this machine only until VLLM_BIND says otherwise: the API has no authentication of its own, and a
port that Docker publishes passes by the host's firewall. The token is read from the environment of who starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_advisor.render.document import dump


if TYPE_CHECKING:
    from vllm_advisor.render.job import Job

_IMAGE_HOME = "/root"  # of the user that vLLM's images run as
HUB_CACHE = f"{_IMAGE_HOME}/.cache/huggingface"
VLLM_CACHE = f"{_IMAGE_HOME}/.cache/vllm"


def compose(job: Job) -> str:
    """The file's text; `docker compose up` runs it. Raises UsageError for several nodes."""
    job.must_be_one_node("a Compose file")
    volumes: dict[str, object] = {"huggingface": {}, "vllm": {}}
    document = {"name": job.name, "services": {"vllm": _service(job)}, "volumes": volumes}
    usage = ["# docker compose -f THIS_FILE.yaml up", "# VLLM_BIND=0.0.0.0 opens the port to other machines"]
    return "\n".join([*job.heading(), *usage, *job.comments()]) + "\n" + dump(document)


def _service(job: Job) -> dict[str, object]:
    environment: dict[str, str | None] = {name: _literal(value) for name, value in job.command.env}
    return {
        "image": job.image,
        "entrypoint": list(job.command.argv[:2]),
        "command": [_literal(argument) for argument in job.command.argv[2:]],
        # Without a value Compose passes on the caller's own variable, and none when there is none.
        "environment": environment | {"HF_TOKEN": None},
        "ports": [f"${{VLLM_BIND:-127.0.0.1}}:${{VLLM_PORT:-{job.port}}}:{job.port}"],
        "volumes": [f"huggingface:{HUB_CACHE}", f"vllm:{VLLM_CACHE}", *_model_volume(job)],
        "shm_size": f"{job.shared_memory_gib}gb",
        **_devices(job),
        "healthcheck": _healthcheck(job),
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
    }


def _literal(text: str) -> str:
    """Compose replaces `$NAME` in every value; two dollars are one."""
    return text.replace("$", "$$")


def _model_volume(job: Job) -> list[dict[str, object]]:
    folder = job.local_folder
    return [{"type": "bind", "source": folder, "target": folder, "read_only": True}] if folder else []


def _devices(job: Job) -> dict[str, object]:
    """What the vendor's containers need: vLLM's documents give these options for ROCm and CPU."""
    if job.vendor is Vendor.NVIDIA:
        request = {"driver": "nvidia", "count": job.devices, "capabilities": ["gpu"]}
        return {"deploy": {"resources": {"reservations": {"devices": [request]}}}}
    if job.vendor is Vendor.AMD:
        return {
            "devices": ["/dev/kfd", "/dev/dri"],
            "group_add": ["video", "render"],
            "cap_add": ["SYS_PTRACE"],
            "security_opt": ["seccomp=unconfined"],
        }
    return {"cap_add": ["SYS_NICE"], "security_opt": ["seccomp=unconfined"]}


def _healthcheck(job: Job) -> dict[str, object]:
    """Python is in every image of vLLM's, curl is not."""
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{job.port}/health', timeout=5)"
    return {
        "test": ["CMD", "python3", "-c", ask],
        "interval": "10s",
        "timeout": "10s",
        "retries": 3,
        "start_period": f"{job.start_allowance_s}s",
    }

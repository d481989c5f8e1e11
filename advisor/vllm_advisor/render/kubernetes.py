"""Kubernetes manifests for one pod: claim, deployment, service. Checked against the API's schemas in the tests.

A plan of several nodes is refused: that is LeaderWorkerSet's work, not a Deployment's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_advisor.render.compose import HUB_CACHE, VLLM_CACHE
from vllm_advisor.render.document import dump


if TYPE_CHECKING:
    from vllm_advisor.render.job import Job

TOKEN_SECRET = "hf-token"  # noqa: S105  the name of a secret, not one
_PROBE_PERIOD_S = 10
_RESOURCES = {Vendor.NVIDIA: "nvidia.com/gpu", Vendor.AMD: "amd.com/gpu"}
_Manifest = dict[str, object]


def kubernetes(job: Job) -> str:
    """The manifests, for `kubectl apply -f`. Raises UsageError for several nodes."""
    job.must_be_one_node("a Deployment")
    usage = [
        "# kubectl apply -f THIS_FILE.yaml",
        f"# A gated model needs: kubectl create secret generic {TOKEN_SECRET} --from-literal=token=…",
    ]
    documents = [dump(manifest) for manifest in (_claim(job), _deployment(job), _service(job))]
    return "\n".join([*job.heading(), *usage, *job.comments()]) + "\n" + "---\n".join(documents)


def _claim(job: Job) -> _Manifest:
    storage = {"requests": {"storage": f"{job.cache_gib}Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(job),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": storage},
    }


def _service(job: Job) -> _Manifest:
    port = {"name": "http", "port": job.port, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
        "spec": {"selector": _labels(job), "ports": [port]},
    }


def _deployment(job: Job) -> _Manifest:
    template = {"metadata": {"labels": _labels(job)}, "spec": _pod(job)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(job),
        "spec": {
            "replicas": 1,
            # A rolling update would need the GPUs twice.
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": job.start_allowance_s + 600,
            "selector": {"matchLabels": _labels(job)},
            "template": template,
        },
    }


def _pod(job: Job) -> _Manifest:
    shared = {"medium": "Memory", "sizeLimit": f"{job.shared_memory_gib}Gi"}
    volumes = [
        {"name": "cache", "persistentVolumeClaim": {"claimName": job.name}},
        {"name": "shm", "emptyDir": shared},
    ]
    folder = job.local_folder
    volumes += [{"name": "model", "hostPath": {"path": folder, "type": "Directory"}}] if folder else []
    return {
        # A service named vllm would put VLLM_PORT=tcp://… into every pod, which vLLM reads as its own (envs.py).
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
        "containers": [_container(job)],
        "volumes": volumes,
    }


def _container(job: Job) -> _Manifest:
    security = _security(job)
    return {
        "name": "vllm",
        "image": job.image,
        "command": list(job.command.argv[:2]),
        "args": [_literal(argument) for argument in job.command.argv[2:]],
        "env": [*({"name": name, "value": _literal(value)} for name, value in job.command.env), _token()],
        "ports": [{"name": "http", "containerPort": job.port}],
        "resources": _resources(job),
        **({"securityContext": security} if security else {}),
        "volumeMounts": _mounts(job),
        "startupProbe": _probe(math.ceil(job.start_allowance_s / _PROBE_PERIOD_S)),
        "readinessProbe": _probe(1),
        "livenessProbe": _probe(6),
    }


def _literal(text: str) -> str:
    """Kubernetes replaces `$(NAME)`; two dollars keep it."""
    return text.replace("$(", "$$(")


def _token() -> _Manifest:
    reference = {"name": TOKEN_SECRET, "key": "token", "optional": True}
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def _resources(job: Job) -> _Manifest:
    """GPUs are whole and asked for as a limit; a CPU server asks for the cores that it was planned for."""
    if job.vendor is Vendor.CPU:
        return {"requests": {"cpu": str(job.cores)}} if job.cores else {}
    return {"limits": {_RESOURCES[job.vendor]: str(job.devices)}}


def _security(job: Job) -> _Manifest:
    """What vLLM's documents ask for: ROCm's memory mapping, and a CPU server's binding to NUMA nodes."""
    if job.vendor is Vendor.NVIDIA:
        return {}
    capability = "SYS_PTRACE" if job.vendor is Vendor.AMD else "SYS_NICE"
    return {"seccompProfile": {"type": "Unconfined"}, "capabilities": {"add": [capability]}}


def _mounts(job: Job) -> list[_Manifest]:
    mounts: list[_Manifest] = [
        {"name": "cache", "mountPath": HUB_CACHE, "subPath": "huggingface"},
        {"name": "cache", "mountPath": VLLM_CACHE, "subPath": "vllm"},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  the mount itself
    ]
    folder = job.local_folder
    return mounts + ([{"name": "model", "mountPath": folder, "readOnly": True}] if folder else [])


def _probe(failures: int) -> _Manifest:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": _PROBE_PERIOD_S,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _metadata(job: Job) -> _Manifest:
    return {"name": job.name, "labels": _labels(job)}


def _labels(job: Job) -> _Manifest:
    return {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": job.name}

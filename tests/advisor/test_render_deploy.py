"""Compose, Kubernetes and systemd: valid by their own schemas and tools, and true to the command."""

import json
import shlex
import shutil
import subprocess
from importlib.resources import files

import jsonschema
import kubernetes_validate
import pytest
import yaml

from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Gpu, Host, Node, Vendor
from vllm_advisor.model import ModelSpec, WeightGroup
from vllm_advisor.plan import LaunchCommand, Plan
from vllm_advisor.render import render
from vllm_advisor.vllm.images import image
from vllm_advisor.vllm.surface import load


GPUS = {
    "nvidia": Gpu("NVIDIA H100 SXM", Vendor.NVIDIA, "sm90", 85_520_809_984, 3.35e12, 989.0, 1979.0),
    "amd": Gpu("AMD Instinct MI300X", Vendor.AMD, "gfx942", 206_141_652_992, 5.3e12, 1307.0, 2614.0),
    "cpu": Gpu("EPYC", Vendor.CPU, "cpu-avx512", 64 << 30, 4e11, 3.0),
}
NODES = {vendor: Node((gpu,) * (1 if vendor == "cpu" else 8), host=Host(cores=16)) for vendor, gpu in GPUS.items()}
# 30 GB of weights: 600 s + 30e9 / 100e6 = 900 s to start, 2 x 27.9 GiB + 10 GiB of cache.
WEIGHTS = (WeightGroup("mlp", 15 * 10**9, 30 * 10**9, "column"),)
NAME = "org/Some-Model_15B.Instruct"
MODEL = ModelSpec(NAME, "LlamaForCausalLM", "llama", "bfloat16", 64, 2, 128, 4096, 4, 2, (), WEIGHTS)
ENV = (("VLLM_PLAIN", "1"), ("B", 'it\'s $HOME $(X) "q" 5% \\x'))
JSON_VALUE = json.dumps({"note": 'a $HOME $(POD) "b" it\'s 100% \\ c'})
EVERY = ("nvidia", "amd", "cpu")


def text(fmt, vendor="nvidia", checkpoint=NAME, flags=()):
    argv = ("vllm", "serve", checkpoint, "--tensor-parallel-size", "4", "--speculative-config", JSON_VALUE, *flags)
    plan = Plan(checkpoint, tensor_parallel_size=1 if vendor == "cpu" else 4, env=ENV)
    command = LaunchCommand(argv, ENV, (("--tensor-parallel-size", "why"),))
    node, surface = NODES[vendor], load("0.33.0")
    return argv, render(fmt, command, plan=plan, model=MODEL, node=node, surface=surface, annotate=True)


def service(vendor="nvidia", **kwargs):
    return yaml.safe_load(text("compose", vendor, **kwargs)[1])["services"]["vllm"]


def manifests(vendor="nvidia", **kwargs):
    return {m["kind"]: m for m in yaml.safe_load_all(text("k8s", vendor, **kwargs)[1])}


def pod(vendor="nvidia", **kwargs):
    return manifests(vendor, **kwargs)["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("vendor", EVERY)
def test_compose_file_is_valid(vendor):
    """The file satisfies the Compose specification's own JSON schema, for every vendor."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.validate(yaml.safe_load(text("compose", vendor)[1]), schema)


def test_compose_runs_exactly_the_command():
    """Entry point and command together are the argv, and variables are the plan's, after Compose's own replacing."""
    argv, _ = text("compose")
    described = service()
    assert list(argv) == [a.replace("$$", "$") for a in described["entrypoint"] + described["command"]]
    given = {name: value for name, value in described["environment"].items() if value}
    assert dict(ENV) == {name: value.replace("$$", "$") for name, value in given.items()}
    assert all("$" not in a.replace("$$", "") for a in [*described["command"], *given.values()])


@pytest.mark.parametrize("vendor", EVERY)
def test_compose_pins_the_image_of_the_vendor(vendor):
    """The image is that of the version and the vendor, never `latest`."""
    assert image(load("0.33.0"), NODES[vendor]) == service(vendor)["image"]
    assert "0.33.0" in service(vendor)["image"]


def test_compose_asks_for_the_gpus_of_the_plan():
    """NVIDIA GPUs are reserved by count: the plan's four, not the node's eight."""
    request = {"driver": "nvidia", "count": 4, "capabilities": ["gpu"]}
    assert [request] == service()["deploy"]["resources"]["reservations"]["devices"]


def test_compose_gives_rocm_its_devices():
    """ROCm needs the two device nodes and the groups that own them, and no NVIDIA reservation."""
    described = service("amd")
    assert (["/dev/kfd", "/dev/dri"], ["video", "render"]) == (described["devices"], described["group_add"])
    assert "deploy" not in described


def test_compose_token_is_a_reference():
    """HF_TOKEN is passed on from who starts the file and never written into it."""
    assert service()["environment"]["HF_TOKEN"] is None


def test_compose_port_is_closed_to_other_machines():
    """The API has no authentication, so it listens on this machine only unless VLLM_BIND says otherwise."""
    assert ["${VLLM_BIND:-127.0.0.1}:${VLLM_PORT:-8000}:8000"] == service()["ports"]
    assert ["${VLLM_BIND:-127.0.0.1}:${VLLM_PORT:-9000}:9000"] == service(flags=("--port", "9000"))["ports"]


def test_compose_allows_for_the_start():
    """A 30 GB checkpoint has 600 s and 300 s more before it counts as unhealthy; four GPUs share 8 GiB of memory."""
    assert "900s" == service()["healthcheck"]["start_period"]
    assert "8gb" == service()["shm_size"]


def test_compose_healthcheck_runs():
    """The health check's Python is Python: it fails because nobody listens, not because it cannot be read."""
    _, python, flag, code = service(flags=("--port", "1"))["healthcheck"]["test"]
    done = subprocess.run([python, flag, code], capture_output=True, text=True, check=False)
    assert "Connection refused" in done.stderr


def test_local_folder_is_mounted_read_only():
    """A model in a folder is seen by the container under the same path, read-only."""
    bind = {"type": "bind", "source": "/models/x", "target": "/models/x", "read_only": True}
    assert bind == service(checkpoint="/models/x")["volumes"][-1]
    mounted = pod(checkpoint="/models/x")
    assert {"name": "model", "hostPath": {"path": "/models/x", "type": "Directory"}} == mounted["volumes"][-1]
    mount = {"name": "model", "mountPath": "/models/x", "readOnly": True}
    assert mount == mounted["containers"][0]["volumeMounts"][-1]


def test_relative_folder_is_refused():
    """A relative path means nothing inside a container."""
    with pytest.raises(UsageError) as caught:
        text("compose", checkpoint="./model")
    assert "give the model as an absolute path" == caught.value.hint


@pytest.mark.parametrize("vendor", EVERY)
def test_kubernetes_manifests_are_valid(vendor):
    """Every manifest satisfies the strict schema of the Kubernetes API, for every vendor."""
    found = manifests(vendor)
    for manifest in found.values():
        kubernetes_validate.validate(manifest, "1.34", strict=True)
    assert ["PersistentVolumeClaim", "Deployment", "Service"] == list(found)


def test_kubernetes_runs_exactly_the_command():
    """Command and args together are the argv, variables are the plan's, after Kubernetes' own replacing."""
    argv, _ = text("k8s")
    container = pod()["containers"][0]
    assert list(argv) == [a.replace("$$(", "$(") for a in container["command"] + container["args"]]
    given = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert dict(ENV) == {name: value.replace("$$(", "$(") for name, value in given.items()}
    assert all("$(" not in a.replace("$$(", "") for a in [*container["args"], *given.values()])


@pytest.mark.parametrize(("vendor", "limits"), [("nvidia", {"nvidia.com/gpu": "4"}), ("amd", {"amd.com/gpu": "4"})])
def test_kubernetes_limits_the_gpus(vendor, limits):
    """The device plugin's resource is that of the vendor, as many as the plan uses."""
    assert {"limits": limits} == pod(vendor)["containers"][0]["resources"]


def test_kubernetes_cpu_server_asks_for_its_cores():
    """On the CPU no device is asked for, but the cores that were planned with are."""
    assert {"requests": {"cpu": "16"}} == pod("cpu")["containers"][0]["resources"]


def test_kubernetes_token_is_an_optional_secret():
    """The token comes from a secret that need not exist, because most models need none."""
    reference = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} == pod()["containers"][0]["env"][-1]


def test_kubernetes_probes_ask_health():
    """The start may take 900 s (90 x 10 s); until then neither readiness nor liveness counts."""
    container = pod()["containers"][0]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert [{"path": "/health", "port": "http"}] * 3 == [probe["httpGet"] for probe in probes]
    assert (90, 10) == (probes[0]["failureThreshold"], probes[0]["periodSeconds"])


def test_kubernetes_pod_sees_no_service_variables():
    """VLLM_PORT of a service called vllm would be taken for vLLM's own, so no such variables are made."""
    assert pod()["enableServiceLinks"] is False
    assert {"medium": "Memory", "sizeLimit": "8Gi"} == pod()["volumes"][1]["emptyDir"]


def test_kubernetes_objects_share_a_valid_name():
    """All objects carry one DNS label made of the model's name, and select each other by it."""
    found = manifests()
    assert {"vllm-some-model-15b-instruct"} == {m["metadata"]["name"] for m in found.values()}
    assert found["Service"]["spec"]["selector"] == found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert "66Gi" == found["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"]


@pytest.mark.parametrize("vendor", EVERY)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (apt: systemd)")
def test_systemd_unit_is_valid(tmp_path, vendor):
    """systemd's own verification finds nothing to say about the unit."""
    unit = tmp_path / "vllm-test.service"
    unit.write_text(text("systemd", vendor)[1])
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, "\n".join(line for line in done.stderr.splitlines() if "vllm-test" in line))


def test_systemd_runs_exactly_the_command():
    """ExecStart is the argv, and Environment the variables, once systemd has undone its quoting."""
    argv, unit = text("systemd")
    lines = unit.splitlines()
    start = next(line for line in lines if line.startswith("ExecStart="))
    words = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(start.partition("=")[2])]
    assert ["/usr/bin/env", *argv] == words
    assert {"$", "%"} & set(start.replace("$$", "").replace("%%", "")) == set()
    quoted = [shlex.split(line.partition("=")[2])[0] for line in lines if line.startswith('Environment="')]
    assert [f"{name}={value}" for name, value in ENV] == [pair.replace("%%", "%") for pair in quoted]
    assert "%" not in "".join(quoted).replace("%%", "")


def test_systemd_waits_for_health_and_stops_all():
    """The unit is started when /health answers, within its allowance, and no process outlives it."""
    lines = text("systemd")[1].splitlines()
    assert {"TimeoutStartSec=900", "KillMode=mixed", "Environment=PYTHONSAFEPATH=1"} <= set(lines)
    assert "EnvironmentFile=-/etc/vllm/vllm-some-model-15b-instruct.env" in lines
    assert "/health" in next(line for line in lines if line.startswith("ExecStartPost="))


@pytest.mark.parametrize("fmt", ["compose", "k8s", "systemd"])
def test_annotations_are_comments(fmt):
    """Each of them can carry the reason of a flag without changing what is read back."""
    assert "# --tensor-parallel-size 4: why" in text(fmt)[1].splitlines()

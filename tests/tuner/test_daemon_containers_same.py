"""The same container with other arguments, on real engines: whatever an operator gave his, the new one has as well."""

import json
import subprocess
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.testing_engines import ENTRY, IMAGE
from vllm_tuner.daemon.units.container import Container
from vllm_tuner.daemon.units.container_body import OWN as OWN_LABEL
from vllm_tuner.daemon.units.engine_api import EngineApi
from vllm_tuner.daemon.units.managed import PROFILE


pytestmark = pytest.mark.slow

OWN = ["/bin/vllm", "serve", "m", "--max-num-seqs", "8"]
PLAN = LaunchCommand(("/bin/vllm", "serve", "m", "--max-num-seqs", "4"), (("VLLM_X", "1"), ("NEW", "a b")))
SERVED, PLANNED = "serve m --max-num-seqs 8", "serve m --max-num-seqs 4"


def only(engine, *kinds):
    """What one of them alone can do."""
    if engine.kind not in kinds:
        pytest.skip(f"not with {engine.kind}")


# What an operator gave his container, as far as both engines take it over their API.
GIVEN = {
    "Env": ["HF_HOME=/data", "VLLM_X=0", 'QUOTED=a "b" $c'], "Labels": {"team": "chat"}, "User": "0:0",
    "WorkingDir": "/www", "Hostname": "chat", "StopSignal": "SIGTERM", "StopTimeout": 20, "Volumes": {"/kept": {}},
    "Healthcheck": {"Test": ["CMD", "/bin/echo", "ok"], "Interval": 3600 * 10**9, "Retries": 2},
    "HostConfig": {
        "Binds": ["{folder}:/data:ro", "named:/cache"], "ShmSize": 2**28, "Tmpfs": {"/scratch": "size=1m"},
        "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}, "CapAdd": ["SYS_PTRACE"],
        "CapDrop": ["MKNOD"], "GroupAdd": ["44"], "ExtraHosts": ["models:10.1.2.3"], "OomScoreAdj": 5,
        "SecurityOpt": ["seccomp=unconfined"],
        "Mounts": [{"Type": "bind", "Source": "/etc", "Target": "/etc-there", "ReadOnly": True},
                   {"Type": "volume", "Source": "shared", "Target": "/shared"}],
        "Devices": [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/gpu0", "CgroupPermissions": "rwm"}],
    },
}  # fmt: skip

# What takes control groups, which Podman runs without here, or is printed by Docker alone.
DOCKERS = {
    "Memory": 2**28, "CpuShares": 512, "CpusetCpus": "0", "PidsLimit": 200, "DnsSearch": ["example.org"],
    "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}}, "ReadonlyPaths": [], "MaskedPaths": [],
    "PidMode": "host", "MemorySwappiness": 0,
}  # fmt: skip


def configured(found):
    """A container's configuration, one value a field; Podman prints lists in no order, and adds HOME at a restart."""
    fields = {f"{part}.{key}": value for part in ("Config", "HostConfig") for key, value in found[part].items()}
    for name in ("Config.Env", "HostConfig.Binds"):
        fields[name] = sorted(line for line in fields[name] or [] if not line.startswith("HOME="))
    mounts = sorted(json.dumps(one, sort_keys=True) for one in found["Mounts"])
    return fields | {
        "Mounts": mounts,
        "Networks": sorted(found["NetworkSettings"]["Networks"]),
        "Image": found["Image"],
    }


def differences(one, other):
    """Fields that differ: what the first has there, and what the second has."""
    return {key: (one.get(key), other.get(key)) for key in one | other if one.get(key) != other.get(key)}


def test_the_new_one_is_configured_as_the_own_one(engine):
    """Field by field: the arguments, the plan's variables and the label differ, and an unnamed volume is now named."""
    asked = json.loads(json.dumps(GIVEN).replace("{folder}", str(engine.folder)))
    asked["HostConfig"] |= DOCKERS if engine.kind == "docker" else {}
    engine.run("vllm", OWN, **asked)
    before = configured(engine.see("vllm"))
    unit = Container("vllm", engine.path)
    unit.start(PLAN, "abc")
    found = differences(before, configured(engine.see("vllm")))
    volume = [] if engine.kind == "podman" else ["HostConfig.Binds", "Mounts"]  # Docker: Mode "" is then "z"
    assert sorted(["Config.Cmd", "Config.Entrypoint", "Config.Env", "Config.Labels", *volume]) == sorted(found)
    assert {"VLLM_X=0", "VLLM_X=1", "NEW=a b"} == set(found["Config.Env"][0]) ^ set(found["Config.Env"][1])
    assert ({PROFILE, OWN_LABEL, "team"}, PLANNED) == (set(found["Config.Labels"][1]), engine.serves())
    unit.restore()
    assert ({}, SERVED) == (differences(before, configured(engine.see("vllm"))), engine.serves())


def test_an_image_whose_name_means_another_one_by_now(engine):
    """The new one runs the image that the own one runs, whatever was pulled since."""
    engine.tag(IMAGE, "localhost/moved:latest")
    engine.run("vllm", OWN, image="localhost/moved:latest")
    engine.tag(ENTRY, "localhost/moved:latest")
    own = engine.see("vllm")["Image"]
    Container("vllm", engine.path).start(PLAN, "abc")
    assert (own, PLANNED) == (engine.see("vllm")["Image"], engine.serves())


def test_the_memory_of_the_host_is_shared_still(engine):
    """`--ipc=host`, which Podman prints as shareable, and with which it takes no size."""
    engine.run("vllm", OWN, HostConfig={"IpcMode": "host"})
    Container("vllm", engine.path).start(PLAN, "abc")
    spaces = [Path(f"/proc/{number}/ns/ipc").readlink() for number in ("self", engine.see("vllm")["State"]["Pid"])]
    assert (PLANNED, spaces[0]) == (engine.serves(), spaces[1])


def test_what_an_engine_does_not_keep_is_refused_before_anything_stops(engine, monkeypatch):
    """A bind mount is lost on the way to the engine: nothing is stopped, nothing is left."""
    engine.run("vllm", OWN, HostConfig={"Binds": [f"{engine.folder}:/data"]})
    create = EngineApi.create
    monkeypatch.setattr(
        EngineApi, "create",
        lambda api, name, body: create(api, name, body | {"HostConfig": body["HostConfig"] | {"Binds": []}}),
    )  # fmt: skip
    with pytest.raises(EngineError, match="does not keep of vllm: Binds, mount /data"):
        Container("vllm", engine.path).start(PLAN, "abc")
    assert (SERVED, {"vllm": True}) == (engine.serves(), engine.names())


def test_others_find_it_by_its_name(engine):
    """In a network of Docker's the new one answers to the name, and to none that it had on its way."""
    only(engine, "docker")
    engine.ask("POST", "/networks/create", {"Name": "named", "Driver": "bridge"})
    engine.run("client", ["/bin/sleep", "600"], HostConfig={"NetworkMode": "named"})
    engine.run("vllm", OWN, HostConfig={"NetworkMode": "named"})
    Container("vllm", engine.path).start(PLAN, "abc")
    inside = ["nsenter", "-t", str(engine.see("client")["State"]["Pid"]), "-n", "-m", "/bin/busybox", "nslookup"]
    asked = {name: subprocess.run([*inside, name], capture_output=True, text=True, check=False) for name in
             ("vllm", "vllm-next")}  # fmt: skip
    address = engine.see("vllm")["NetworkSettings"]["Networks"]["named"]["IPAddress"]
    assert (True, False) == tuple(address in done.stdout for done in asked.values())


def test_device_requests(engine):
    """`--gpus` stays; where its driver is missing the start says so, and the own one is kept."""
    only(engine, "docker")
    asked = [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}]
    own = engine.run("vllm", OWN, start=False, HostConfig={"DeviceRequests": asked})
    with pytest.raises(EngineError, match="could not select device driver"):
        Container("vllm", engine.path).start(PLAN, "abc")
    assert (asked, own) == (engine.see("vllm")["HostConfig"]["DeviceRequests"], engine.see("vllm-before")["Id"])


def test_devices_that_podman_cannot_be_asked_for(engine):
    """CDI names of a command line are in no inspection: refused before anything is stopped."""
    only(engine, "podman")
    limits = ["--ulimit", "nofile=512:1024", "--ulimit", "nproc=512:1000"]
    engine.podman(
        "create", "--name", "vllm", "--network", "host", *limits, "--device", "nvidia.com/gpu=all", IMAGE, *OWN
    )
    with pytest.raises(EngineError, match=r"cannot be asked for nvidia\.com/gpu=all"):
        Container("vllm", engine.path).start(PLAN, "abc")
    assert {"vllm": False} == engine.names()


def networked(engine):
    """The operator's container in two networks, with an address, aliases and a published port."""
    for number, name in enumerate(("front", "back")):
        subnet = {"Config": [{"Subnet": f"10.199.{number}.0/24"}]}
        assert 201 == engine.ask("POST", "/networks/create", {"Name": name, "Driver": "bridge", "IPAM": subnet})[0]
    ends = {"front": {"Aliases": ["llm"], "IPAMConfig": {"IPv4Address": "10.199.0.9"}}}
    host = {"NetworkMode": "front", "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}}
    more = {"ExposedPorts": {"8000/tcp": {}}, "NetworkingConfig": {"EndpointsConfig": ends}}
    engine.run("vllm", OWN, start=False, HostConfig=host, **more)
    engine.ask("POST", "/networks/back/connect", {"Container": "vllm", "EndpointConfig": {"Aliases": ["backend"]}})
    assert 204 == engine.ask("POST", "/containers/vllm/start")[0]


def reached(found):
    """Networks with their aliases, without the one that an engine makes of the id; ports; and the fixed address."""
    ends, short = found["NetworkSettings"]["Networks"], found["Id"][:12]
    aliases = {name: [one for one in end["Aliases"] if one != short] for name, end in ends.items()}
    return aliases, found["HostConfig"]["PortBindings"], ends["front"]["IPAddress"]


def test_networks_and_ports(engine):
    """Both networks, the aliases, the port, a host name of its own; the fixed address, which Podman does not tell."""
    networked(engine)
    own = engine.see("vllm")
    Container("vllm", engine.path).start(PLAN, "abc")
    new = engine.see("vllm")
    told = slice(0, 3 if engine.kind == "docker" else 2)
    assert (reached(own)[told], PLANNED) == (reached(new)[told], engine.serves())
    assert new["Id"][:12] == new["Config"]["Hostname"]
    Container("vllm", engine.path).restore()
    assert (reached(own), SERVED) == (reached(engine.see("vllm")), engine.serves())

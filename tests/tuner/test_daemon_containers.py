"""The container unit on an engine that is a stand-in: what an engine answers, and what it should not."""

import contextlib
import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.errors import EngineError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.units.container import Container
from vllm_tuner.daemon.units.container_body import argv_of, lost, made_of, networks, own_of
from vllm_tuner.daemon.units.managed import FOREIGN, PROFILE, State
from vllm_tuner.daemon.units.rewrite import rewrite


PLAN = LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "4"), (("VLLM_X", "1"),))
MADE = "sha256:1"


class Engine:
    """A container engine over a Unix socket: containers by name, as Docker's API has them."""

    def __init__(self, path):
        self.containers, self.path = {}, path
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                engine.answer(self)

            def do_POST(self):
                engine.answer(self)

            def do_DELETE(self):
                engine.answer(self)

            def log_message(self, *_):
                pass

            def address_string(self):
                return ""

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request):
        """One call."""
        path, _, query = request.path.partition("?")
        kind, name, *what = path.strip("/").split("/")
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)) or b"null")
        given = {key: values[0] for key, values in parse_qs(query).items()}
        code, answer = self.act((request.command, kind), name, "".join(what), given.get("name", ""), body)
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def act(self, asked, name, what, new, body):
        """(status, answer)."""
        method, kind = asked
        if kind == "images":
            return 200, {"Id": MADE}
        if (method, name) == ("POST", "create"):
            config = {key: body[key] for key in body if key not in ("HostConfig", "NetworkingConfig")}
            ends = {"Networks": body["NetworkingConfig"]["EndpointsConfig"]}
            made = {"Config": config, "HostConfig": body["HostConfig"], "NetworkSettings": ends, "Image": MADE}
            self.containers[new] = made | {"State": {"Running": False}, "Id": f"{len(self.containers):012}"}
            return 201, {}
        found = self.containers.get(name)
        if found is None:
            return 404, {"message": "no such container"}
        if what == "rename":
            self.containers[new] = self.containers.pop(name)
        elif what in ("start", "restart", "stop"):
            found["State"] = {"Running": what != "stop", "Status": "exited", "ExitCode": 137}
        elif what == "update":
            found["HostConfig"] |= body
        elif what == "logs":
            return 200, b"\x02\0\0\0\0\0\0\x05last\n\x01\0\0\0\0\0\0\x06first\n"
        elif method == "DELETE":
            del self.containers[name]
        return 200, found


@pytest.fixture
def engine(tmp_path):
    """An engine with the operator's container running in it."""
    made = Engine(tmp_path / "e.sock")
    made.containers["vllm"] = {
        "Config": {
            "Image": "vllm/vllm-openai:v0.24.0", "Entrypoint": ["vllm", "serve"],
            "Cmd": ["m", "--max-num-seqs", "8"], "Env": ["HF_HOME=/d", "VLLM_X=0"], "Hostname": "abc",
        },
        "HostConfig": {"IpcMode": "host", "Binds": ["/models:/models"], "NetworkMode": "front",
                       "RestartPolicy": {"Name": "always"}},
        "NetworkSettings": {"Networks": {"front": {"Aliases": ["llm", "abc000000000"], "IPAddress": "10.0.0.2"}}},
        "State": {"Running": True}, "Id": "abc000000000ffff", "Image": MADE,
    }  # fmt: skip
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_container_is_replaced_and_comes_back(engine):
    """The own one is put aside, never removed; a second plan replaces only ours; the way back is a rename."""
    unit = Container("vllm", engine.path)
    own = engine.containers["vllm"]
    assert (State(up=True), "8") == (unit.running(), unit.command().argv[4])
    unit.start(rewrite(unit.command(), PLAN), "abc")
    made = engine.containers["vllm"]
    assert (State(up=True, profile="abc"), ["m", "--max-num-seqs", "4"]) == (unit.running(), made["Config"]["Cmd"])
    assert (["/models:/models"], ["HF_HOME=/d", "VLLM_X=1"]) == (made["HostConfig"]["Binds"], made["Config"]["Env"])
    unit.start(rewrite(unit.command(), PLAN), "def")
    assert (State(up=True, profile="def"), own) == (unit.running(), engine.containers["vllm-before"])
    assert ("no", "always") == tuple(
        engine.containers[name]["HostConfig"]["RestartPolicy"]["Name"] for name in ("vllm-before", "vllm")
    )
    unit.restore()
    assert (State(up=True), {"vllm": own}) == (unit.running(), engine.containers)
    assert "always" == own["HostConfig"]["RestartPolicy"]["Name"]


def test_one_that_is_down_says_why(engine):
    """Its state, its exit code, whether memory ran out, and its last words; one that comes and goes is down."""
    unit, found = Container("vllm", engine.path), engine.containers["vllm"]
    found["State"] = {"Running": False, "Status": "exited", "ExitCode": 137, "OOMKilled": True}
    assert "exited, exit code 137, out of memory: last" == unit.running().why
    found["State"] = {"Running": True, "Restarting": True, "Status": "restarting", "ExitCode": 1}
    assert State(up=False, why="restarting, exit code 1: last") == unit.running()
    found["State"] = {"Running": False, "Status": "created", "ExitCode": 0}
    assert State(up=False, why="created, exit code 0") == unit.running()


def test_ours_without_the_own_one(engine):
    """The one that was put aside was removed, and ours does not tell what it was: nothing is taken for it."""
    unit = Container("vllm", engine.path)
    unit.start(PLAN, "abc")
    del engine.containers["vllm-before"]
    engine.containers["vllm"]["Config"]["Labels"] = {PROFILE: "abc"}
    for order in (unit.command, unit.restore, lambda: unit.start(PLAN, "def")):
        with pytest.raises(EngineError, match="vllm-before is gone"):
            order()
    assert "abc" == unit.running().profile


def test_the_own_one_was_pruned_away(engine):
    """Ours remembers what it replaced, through further plans: arguments, variables and the restart policy."""
    unit, own = Container("vllm", engine.path), json.dumps(engine.containers["vllm"]["Config"])
    unit.start(rewrite(unit.command(), PLAN), "abc")
    del engine.containers["vllm-before"]
    assert ("vllm", "serve", "m", "--max-num-seqs", "8") == unit.command().argv
    unit.start(rewrite(unit.command(), PLAN), "def")
    unit.restore()
    made = engine.containers["vllm"]
    assert (State(up=True), ["vllm"]) == (unit.running(), list(engine.containers))
    assert (json.loads(own)["Env"], "always") == (made["Config"]["Env"], made["HostConfig"]["RestartPolicy"]["Name"])
    assert {} == made["Config"]["Labels"]


@pytest.mark.parametrize(
    ("name", "running", "says"), [("next", False, "no container of ours"), ("before", True, "runs")]
)
def test_names_that_are_somebody_elses(engine, name, running, says):
    """What has the name, and not our label, is neither removed nor stopped; the own one serves on."""
    engine.containers[f"vllm-{name}"] = {"Config": {}, "State": {"Running": running}}
    with pytest.raises(EngineError, match=says):
        Container("vllm", engine.path).start(PLAN, "abc")
    assert (True, True) == (engine.containers["vllm"]["State"]["Running"], f"vllm-{name}" in engine.containers)


def test_the_entry_point_is_not_repeated(engine):
    """Without one, or with a command of another form, the program is the entry point: an empty one is the image's."""
    own = engine.containers["vllm"]
    plain = own | {"Config": own["Config"] | {"Entrypoint": None}}
    made = [made_of(one, LaunchCommand((*words, "serve", "m", "-x")), "a") for one, words in
            ((own, ["vllm"]), (plain, ["vllm"]), (own, ["python3", "vllm"]))]  # fmt: skip
    assert [["vllm", "serve"], ["vllm"], ["python3"]] == [one["Entrypoint"] for one in made]
    assert [["m", "-x"], ["serve", "m", "-x"], ["vllm", "serve", "m", "-x"]] == [one["Cmd"] for one in made]


def test_what_an_engine_gave_is_not_asked_for(engine):
    """The host name and alias that stand for the old id go; those that were asked for stay, and so does an address."""
    own = engine.containers["vllm"]
    made = made_of(own, PLAN, "a")
    assert (False, "a") == ("Hostname" in made, made["Labels"][PROFILE])
    assert {"front": {"Aliases": ["llm"]}} == made["NetworkingConfig"]["EndpointsConfig"]
    named = own | {"Config": own["Config"] | {"Hostname": "chat"}}
    assert "chat" == made_of(named, PLAN, "a")["Hostname"]
    ends = {"back": {"Aliases": []}, "front": {"IPAMConfig": {"IPv4Address": "10.0.0.2"}}}
    assert ["front", "back"] == list(networks(own | {"NetworkSettings": {"Networks": ends}}))
    assert {} == networks(own | {"HostConfig": {"NetworkMode": "host"}, "NetworkSettings": {"Networks": {"host": {}}}})


def test_podmans_limits_and_devices(engine):
    """Printed with a prefix and without rights, zeros as if they were set, and a size that may not be asked for."""
    own = engine.containers["vllm"]
    host = {"Ulimits": [{"Name": "RLIMIT_NOFILE", "Soft": 1, "Hard": 2}], "IpcMode": "host", "ShmSize": 65536000,
            "Devices": [{"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd", "CgroupPermissions": ""}],
            "Runtime": "oci", "MemorySwappiness": 0}  # fmt: skip
    body = made_of(own | {"HostConfig": host}, PLAN, "a", podman=True)
    assert {
        "Ulimits": [{"Name": "nofile", "Soft": 1, "Hard": 2}], "IpcMode": "host",
        "Devices": [{"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd", "CgroupPermissions": "rwm"}],
    } == body["HostConfig"]  # fmt: skip
    assert () == lost(body, own | {"Config": body, "HostConfig": host}, own, podman=True)


def test_what_is_lost_has_a_name(engine):
    """Options, variables, mounts and networks; what an engine adds is no loss."""
    own = engine.containers["vllm"] | {"Mounts": [{"Type": "bind", "Source": "/models", "Destination": "/models"}]}
    body = made_of(own, PLAN, "a")
    whole = {"Config": body, "HostConfig": body["HostConfig"] | {"Init": True}, "Mounts": own["Mounts"]}
    whole |= {"NetworkSettings": own["NetworkSettings"]}
    assert () == lost(body, whole, own)
    bare = {"Config": {}, "HostConfig": {"NetworkMode": "host", "Binds": []}}
    named = ("IpcMode", "Binds", "NetworkMode", "RestartPolicy", "variable HF_HOME", "mount /models", "network front")
    assert set(named) <= set(lost(body, bare, own))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(
        ["Cmd", "Entrypoint", "Env", "Labels", "Binds", "NetworkMode", "Networks", "Ulimits", "Name", "Devices"]
    ), inner, max_size=3), max_leaves=8,
)  # fmt: skip


@given(
    st.fixed_dictionaries({"Config": JSON, "HostConfig": JSON, "NetworkSettings": JSON, "Mounts": JSON}), st.booleans()
)
def test_descriptions_of_any_form(own, podman):
    """A body, or one line."""
    for ask in (argv_of, own_of, lambda found: lost({"HostConfig": {}, "Env": []}, found, own, podman=podman)):
        with contextlib.suppress(EngineError):
            ask(own)
    try:
        body = made_of(own, PLAN, "a", podman=podman)
    except EngineError:
        return
    assert ("a", list(PLAN.argv)) == (body["Labels"][PROFILE], body["Entrypoint"] + body["Cmd"])


def test_what_runs_beside_ours(engine):
    """Two at once are nobody's."""
    unit = Container("vllm", engine.path)
    unit.start(PLAN, "abc")
    engine.containers["vllm-before"]["State"]["Running"] = True
    assert FOREIGN == unit.running().profile

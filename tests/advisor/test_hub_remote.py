"""The hub, spoken to over a real socket: a local server that answers as the hub does, well and badly."""

import json
import os
import re
import struct
import subprocess
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vllm_advisor.catalog import hub
from vllm_advisor.errors import BadInput, UnknownModel
from vllm_advisor.testing import TINY_LLAMA


COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
TOKEN = "hf_averysecrettokenofatest"  # noqa: S105  not a real one
LLAMA = TINY_LLAMA
CONFIG = json.dumps(LLAMA).encode()


class _Hub(BaseHTTPRequestHandler):
    """Answers from `server.files` (path → bytes or (status, error code)) and keeps what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, *, body):
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        found = self.server.files.get(self.path, (404, "EntryNotFound"))
        if found == "silence":
            self.server.stopping.wait(30)
            self.close_connection = True
            return
        status, content, extra = (
            (200, found, {}) if isinstance(found, bytes) else (found[0], b"{}", {"X-Error-Code": found[1]})
        )
        self.send_response(status)
        headers = {
            "Content-Length": len(content),
            "ETag": f'"{zlib.crc32(content):x}"',
            "X-Repo-Commit": COMMIT,
            "Connection": "close",
            **extra,
        }
        headers |= self.server.extra.get(self.path, {})
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A hub on this machine, with one repository; the client is pointed at it and the network is allowed."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as httpd:
        httpd.files, httpd.asked, httpd.extra, httpd.stopping = {}, [], {}, threading.Event()
        httpd.files["/acme/One-8B/resolve/main/config.json"] = CONFIG
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{httpd.server_port}")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setattr(
            "huggingface_hub.constants.HF_HUB_OFFLINE", False
        )  # the client reads its variable when it is imported
        yield httpd
        httpd.stopping.set()
        httpd.shutdown()
        thread.join()


def _line(error):
    """What a user would see; never with the token in it."""
    text = f"{error.message} | {error.hint}"
    assert TOKEN not in text
    assert "\n" not in text
    return text


def test_a_repository_is_read_from_the_hub(server, capfd):
    """The config is fetched with the token, kept in the cache, and nothing is printed."""
    spec = hub.resolve("acme/One-8B")
    assert ("acme/One-8B", "hub", "the Hugging Face hub", 4) == (
        spec.name,
        spec.provenance,
        spec.source,
        spec.num_layers,
    )
    assert {f"Bearer {TOKEN}"} == {token for _, path, token in server.asked if path.endswith("config.json")}
    assert ("", "") == capfd.readouterr()
    before = len(server.asked)
    assert "the Hugging Face cache" == hub.resolve("acme/One-8B", offline=True).source
    assert before == len(server.asked)


def test_only_metadata_is_fetched(server):
    """No weights and no code: a config, ModelOpt's config, the index, or a single file's header."""
    hub.resolve("acme/One-8B")
    asked = {path.rpartition("/")[2] for _, path, _ in server.asked}
    assert {"config.json", "hf_quant_config.json", "model.safetensors.index.json", "model.safetensors"} == asked


def test_the_index_gives_the_exact_size(server):
    """Where a repository has shards, their index states the bytes."""
    server.files["/acme/One-8B/resolve/main/model.safetensors.index.json"] = b'{"metadata": {"total_size": 4321}}'
    assert 4321 == hub.resolve("acme/One-8B").exact_weight_bytes


def test_a_single_files_header_gives_the_exact_size(server):
    """Where there is one file, its first bytes are enough."""
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3, 7], "data_offsets": [0, 42]}}).encode()
    server.files["/acme/One-8B/resolve/main/model.safetensors"] = struct.pack("<Q", len(header)) + header
    assert 42 == hub.resolve("acme/One-8B").exact_weight_bytes


def test_modelopts_own_file_is_fetched(server):
    """A config without a quantization may have it in a file of its own."""
    found = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    server.files["/acme/One-8B/resolve/main/hf_quant_config.json"] = json.dumps(found).encode()
    assert "modelopt" == hub.resolve("acme/One-8B").quantization.method


def test_modelopts_file_that_cannot_be_fetched_is_no_silence(server):
    """An answer without it could call four bits sixteen, so the failure is the answer."""
    server.files["/acme/One-8B/resolve/main/hf_quant_config.json"] = (503, "")
    with pytest.raises(UnknownModel):
        hub.resolve("acme/One-8B")


def test_a_revision_is_asked_for(server):
    """The revision is part of the address, and of the answer's source."""
    server.files["/acme/One-8B/resolve/v2/config.json"] = CONFIG
    assert "the Hugging Face hub, revision v2" == hub.resolve("acme/One-8B", revision="v2").source


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((401, "GatedRepo"), BadInput, "is gated: .* set HF_TOKEN"),
        ((403, "GatedRepo"), BadInput, "is gated"),
        ((401, "RepoNotFound"), UnknownModel, "no model .* nearest in the catalog"),
        ((401, ""), BadInput, r"refuses .*\(401\)"),
        ((404, "RepoNotFound"), UnknownModel, "no model"),
        ((404, "RevisionNotFound"), BadInput, "has no revision"),
        ((404, "EntryNotFound"), BadInput, "has no config.json"),
        ((403, ""), BadInput, r"refuses .*\(403\)"),
        ((429, ""), UnknownModel, r"\(429\)"),
        ((500, ""), UnknownModel, "the hub answers 500"),
        ((503, ""), UnknownModel, "the hub answers 503"),
    ],
)
def test_each_refusal_is_one_line(server, answer, error, says):
    """Gated, private, absent, limited or broken: which it is, and what to do."""
    server.files["/acme/One-8B/resolve/main/config.json"] = answer
    with pytest.raises(error) as caught:
        hub.resolve("acme/One-8B")
    assert re.search(says, _line(caught.value)), _line(caught.value)


def test_a_silent_hub_is_not_waited_for(server, monkeypatch):
    """After HF_HUB_ETAG_TIMEOUT seconds there is an answer, without the hub."""
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "0.2")
    server.files["/acme/One-8B/resolve/main/config.json"] = "silence"
    with pytest.raises(UnknownModel) as caught:
        hub.resolve("acme/One-8B")
    assert "the hub did not answer in 0.2 s" in _line(caught.value)


@pytest.mark.usefixtures("server")
def test_a_closed_port_is_one_line(monkeypatch):
    """A hub that cannot be reached is said to be so, with what else can be given."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnknownModel) as caught:
        hub.resolve("acme/One-8B")
    assert "the hub cannot be reached" in _line(caught.value)
    assert "give a local folder" in _line(caught.value)


def test_a_huge_config_is_not_downloaded(server):
    """The size is asked before the content."""
    path = "/acme/One-8B/resolve/main/config.json"
    server.extra[path] = {"X-Linked-Size": 9 << 20}
    with pytest.raises(BadInput, match="has 9,437,184 bytes"):
        hub.resolve("acme/One-8B")
    assert [("HEAD", path)] == [(method, asked) for method, asked, _ in server.asked]


def test_a_broken_config_on_the_hub_is_one_line(server):
    """What the hub sends is as little trusted as a folder."""
    server.files["/acme/One-8B/resolve/main/config.json"] = b'{"a": '
    with pytest.raises(BadInput, match=r"acme/One-8B/config.json.* is not JSON"):
        hub.resolve("acme/One-8B")


def test_a_login_page_instead_of_the_hub_is_one_line(server):
    """A proxy that answers everything with its own page has no commit, so it is not taken for the hub."""
    path = "/acme/One-8B/resolve/main/config.json"
    server.files[path] = b"<html>log in</html>"
    server.extra[path] = {"X-Repo-Commit": ""}
    with pytest.raises(BadInput) as caught:
        hub.resolve("acme/One-8B")
    _line(caught.value)


def test_catalog_names_ask_nobody(server):
    """A name of the catalog is answered without a single request."""
    assert "verbatim" == hub.resolve("openai/gpt-oss-120b").provenance
    assert [] == server.asked


def test_offline_asks_nobody(server):
    """`offline` is kept even when the hub has the model."""
    with pytest.raises(UnknownModel):
        hub.resolve("acme/One-8B", offline=True)
    assert [] == server.asked


@pytest.mark.usefixtures("server")
def test_a_whole_process_is_quiet_and_loads_the_client_late():
    """A fresh process: no client for a catalog name; for another, one answer and no word on stderr."""
    code = (
        "import sys; from vllm_advisor.catalog import hub; hub.resolve('openai/gpt-oss-120b');"
        "print('huggingface_hub' in sys.modules, hub.resolve('acme/One-8B').num_layers)"
    )
    room = {"PYTHONPATH": str(Path(hub.__file__).parents[2])}
    keep = {k: v for k, v in os.environ.items() if k in {"HOME", "HF_HOME", "HF_ENDPOINT", "HF_TOKEN", "PATH"}}
    run = subprocess.run([sys.executable, "-c", code], env=room | keep, capture_output=True, text=True, check=True)
    assert ("False 4\n", "") == (run.stdout, run.stderr)

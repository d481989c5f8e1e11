"""The formats that a terminal, a file or a script takes: read back, each says exactly what the command says."""

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Gpu, Node, Vendor
from vllm_advisor.model import ModelSpec
from vllm_advisor.plan import LaunchCommand, Plan
from vllm_advisor.render import FORMATS, render
from vllm_advisor.vllm.command import llm_kwargs
from vllm_advisor.vllm.surface import load
from vllm_advisor.workload import Workload


H100 = Gpu("NVIDIA H100 SXM", Vendor.NVIDIA, "sm90", 85_520_809_984, 3.35e12, 989.0, 1979.0)
NODE = Node((H100,) * 4)
MODEL = ModelSpec("org/Some-Model_7B", "LlamaForCausalLM", "llama", "bfloat16", 64, 2, 128, 4096, 4, 2, (), ())
PLAN = Plan(MODEL.name, tensor_parallel_size=2, max_model_len=2048, env=(("VLLM_PLAIN", "1"), ("B", "it's $HOME 5% x")))
SPECULATIVE = json.dumps({"method": "ngram", "note": 'a $HOME "b" it\'s 100%'})
ARGV = ("vllm", "serve", MODEL.name, "--tensor-parallel-size", "2", "--enable-expert-parallel")
ARGV += ("--gpu-memory-utilization", "0.9", "--max-model-len", "-1", "--max-num-seqs", "0128")
ARGV += ("--speculative-config", SPECULATIVE, "--middleware", "a.b", "c.d", "--no-enable-prefix-caching")
NOTES = (("--tensor-parallel-size", "two\nGPUs"), ("VLLM_PLAIN", "a reason"), ("", "a remark"))
COMMAND = LaunchCommand(ARGV, PLAN.env, NOTES)
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('VLLM_PLAIN'), os.environ.get('B')]))"
FAKE_VLLM = """
import json
import os

SEEN = os.environ.get("VLLM_PLAIN")


class SamplingParams:
    def __init__(self, **_):
        pass


class LLM:
    def __init__(self, **kwargs):
        print(json.dumps([kwargs, SEEN]))

    def generate(self, *_):
        return []
"""


def text(fmt, *, command=COMMAND, plan=PLAN, annotate=False):
    surface = load("0.33.0")
    return render(fmt, command, plan=plan, model=MODEL, node=NODE, surface=surface, annotate=annotate)


def flattened(config):
    """The arguments that vLLM 0.24.0 makes of a config file (utils/argparse_utils.py, load_config_file)."""
    argv = []
    for key, value in config.items():
        if value is True:
            argv.append(f"--{key}")
        elif isinstance(value, list):
            argv += [f"--{key}", *map(str, value)]
        elif isinstance(value, dict):
            argv += [f"--{key}", json.dumps(value)]
        elif value is not False:
            argv += [f"--{key}", str(value)]
    return argv


def test_unknown_format_names_the_known_ones():
    """A format that does not exist is a usage error whose hint lists all that do."""
    with pytest.raises(UsageError) as caught:
        text("helm")
    assert f"one of {', '.join(FORMATS)}" == caught.value.hint


@pytest.mark.parametrize("annotate", [False, True])
def test_a_shell_runs_exactly_the_command(annotate):
    """A POSIX shell that runs the text starts vllm with every argument and variable as planned."""
    script = f'vllm() {{ {sys.executable} -c "{ECHO}" "$@"; }}\n' + text("command", annotate=annotate)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert [list(ARGV[1:]), "1", "it's $HOME 5% x"] == json.loads(done.stdout)


def test_a_flag_stands_on_a_line_of_its_own():
    """People read and edit the command by line: one flag each, with its value."""
    lines = text("command").splitlines()
    assert ["vllm serve org/Some-Model_7B \\", "  --tensor-parallel-size 2 \\"] == lines[2:4]
    assert "  --no-enable-prefix-caching" == lines[-1]


def test_annotations_are_one_comment_line_each():
    """A note with a line break stays one comment, so that its second half can never run."""
    annotated = text("command", annotate=True).splitlines()
    wanted = ["# VLLM_PLAIN=1: a reason", "# --tensor-parallel-size 2: two GPUs", "# a remark"]
    assert wanted == [line for line in annotated if line.startswith("#")]
    assert [] == [line for line in text("command").splitlines() if line.startswith("#")]


def test_an_env_file_is_sourced_unchanged():
    """A shell that sources the env file exports the planned values, whatever characters they have."""
    script = f'set -a\n{text("env", annotate=True)}\n{sys.executable} -c "{ECHO}"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert [[], "1", "it's $HOME 5% x"] == json.loads(done.stdout)


def test_an_env_file_without_variables_says_so():
    """An empty environment is stated, so that an empty file is not taken for a failure."""
    lines = text("env", command=LaunchCommand(ARGV)).splitlines()
    assert "# this plan sets no environment variable" == lines[-1]


def test_json_holds_argv_and_environment():
    """Another program gets the argument vector and the variables as they are, the notes only when asked."""
    assert {"argv": list(ARGV), "env": dict(PLAN.env)} == json.loads(text("json"))
    notes = json.loads(text("json", annotate=True))["notes"]
    assert {"of": "VLLM_PLAIN", "why": "a reason"} == notes[1]


def test_vllm_reads_its_arguments_back_from_the_config_file():
    """What vLLM makes of the YAML file is the command's own argument list, the model first."""
    config = yaml.safe_load(text("yaml", annotate=True))
    assert ["--model", MODEL.name, *ARGV[3:]] == flattened(config)


def test_config_values_have_natural_types():
    """Numbers are numbers and JSON is a mapping, where vLLM turns them back into the same text."""
    config = yaml.safe_load(text("yaml"))
    assert (2, 0.9, -1, "0128") == tuple(
        config[key] for key in ("tensor-parallel-size", "gpu-memory-utilization", "max-model-len", "max-num-seqs")
    )
    assert "ngram" == config["speculative-config"]["method"]
    assert config["no-enable-prefix-caching"] is True


def test_config_file_names_the_variables_that_it_cannot_carry():
    """vLLM's config file has no environment, so the reader is told what to export."""
    assert "# export VLLM_PLAIN=1" in text("yaml").splitlines()


def test_script_calls_llm_with_the_kwargs_of_the_plan(tmp_path):
    """Run with a stand-in vllm, the script sets the variables before the import and passes LLM() the plan's kwargs."""
    (tmp_path / "vllm.py").write_text(FAKE_VLLM)
    (tmp_path / "script.py").write_text(text("python", annotate=True))
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True, check=True
    )
    kwargs = dict(llm_kwargs(PLAN, MODEL, NODE, load("0.33.0"), Workload()))
    assert [kwargs, "1"] == json.loads(done.stdout)
    assert (MODEL.name, 2) == (kwargs["model"], kwargs["tensor_parallel_size"])


def test_script_guards_its_main():
    """The engine's new process imports the script, so nothing may run on import."""
    tree = ast.parse(text("python"))
    kinds = {type(node) for node in tree.body}
    assert {ast.Import, ast.Assign, ast.ImportFrom, ast.FunctionDef, ast.If} == kinds


def test_script_refuses_what_one_process_cannot_do():
    """LLM() has no data parallelism in one process, and the hint names what has."""
    with pytest.raises(UsageError) as caught:
        text("python", plan=Plan(MODEL.name, data_parallel_size=2))
    assert "use --format command: the server does" == caught.value.hint


@pytest.mark.parametrize("fmt", ["python", "compose", "k8s", "systemd"])
def test_formats_of_one_machine_refuse_several(fmt):
    """A plan over two nodes is refused by every format that describes one, with what to use instead."""
    with pytest.raises(UsageError, match="this plan needs 2") as caught:
        text(fmt, plan=Plan(MODEL.name, tensor_parallel_size=4, pipeline_parallel_size=2, num_nodes=2))
    assert caught.value.hint.startswith("use --format command")


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_same_plan_gives_the_same_text(fmt):
    """No clock and no hash order: a second rendering is byte for byte the first, and ends its last line."""
    assert text(fmt, annotate=True) == text(fmt, annotate=True)
    assert text(fmt).endswith("\n")


def test_the_test_shell_exists():
    """The shell tests above need sh; without one they would prove nothing."""
    assert shutil.which("sh")


def test_the_command_needs_no_yaml():
    """The format on the way of every `recommend` loads neither PyYAML nor what containers need."""
    code = "import sys, vllm_advisor.render.shell, vllm_advisor.render; print('yaml' in sys.modules)"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "False\n" == done.stdout

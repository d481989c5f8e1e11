"""`advisor verify` on the command line, with an environment whose vLLM is a child of the tests' own."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_advisor.check import read
from vllm_advisor.check.parse import parse
from vllm_advisor.cli import inputs, verify
from vllm_advisor.errors import AdvisorError, EngineError, UnknownModel, UsageError


CHILD = Path(__file__).parents[1] / "data/oracle_child.py"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def python(tmp_path):
    """What --vllm-python names: it runs the tests' child, whatever it is told to run."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{CHILD}"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def model(tmp_path):
    """A folder with a config.json."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def run(*words):
    """The command, with its error raised as it would be."""
    done = CliRunner().invoke(verify.app, [str(word) for word in words])
    if isinstance(done.exception, AdvisorError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_recommended_command_that_vllm_takes_exits_0(python, model):
    """The text names both verdicts part by part, and says that they agree."""
    done = run(model, "--gpu", "H100", "--vllm-python", python)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert 0 == done.exit_code, done.stdout
    assert ["attention", "FLASH_ATTN", "FLASH_ATTN"] in rows
    assert "vLLM takes this command, and we agree on its kernels" in done.stdout


def test_refused_command_exits_1_with_vllms_words(python, model):
    """vLLM's own message stands beside ours, each under its own name."""
    done = run("--gpu", "H100", "--vllm-python", python, "--", "vllm", "serve", model, "--nope")
    assert 1 == done.exit_code
    assert "vLLM (parser): SystemExit: unrecognized arguments: --nope" in done.stdout
    assert "ours: " in done.stdout


def test_other_kernels_than_ours_exit_1(python, model):
    """A cell that differs is marked, and the whole is not good."""
    done = run("--gpu", "H100", "--vllm-python", python, "--", "vllm", "serve", model, "--quantization", "mxfp8")
    line = next(line for line in done.stdout.splitlines() if "linear layers" in line)
    assert (1, True, True) == (done.exit_code, "CutlassFP8" in line, line.endswith("DIFFERS"))


def test_what_only_we_refuse_exits_1(python, model):
    """vLLM's configuration does not look at memory; a command that does not fit is accepted there and not here."""
    command = ["vllm", "serve", model, "--tensor-parallel-size", "3"]
    done = run("--gpu", "L4", "--vllm-python", python, "--", *command)
    assert 1 == done.exit_code
    assert "vLLM takes this command; we do not" in done.stdout
    assert "ours alone" in done.stdout


def test_json_keeps_both_verdicts_apart(python, model):
    """One document: theirs, ours, and the cells with whether they agree."""
    found = json.loads(run(model, "--gpu", "H100", "--vllm-python", python, "--json").stdout)
    assert ("0.33.0+cu130", True, True) == (found["vllm"], found["accepted"], found["good"])
    assert {"parser": None, "configuration": None, "model": None} == {
        stage: found["theirs"][stage] for stage in ("parser", "configuration", "model")
    }
    assert ["vllm", "serve"] == found["command"]["argv"][:2]
    assert {"part": "attention", "ours": "FLASH_ATTN", "theirs": ["FLASH_ATTN"], "agrees": True} in found["cells"]


def test_environment_variables_in_front_are_the_childs(python, model):
    """NAME=VALUE words before the command belong to it."""
    command = ["VLLM_ROCM_USE_AITER=1", "vllm", "serve", model]
    done = run("--gpu", "MI300X", "--vllm-python", python, "--json", "--", *command)
    assert {"VLLM_ROCM_USE_AITER": "1"} == json.loads(done.stdout)["command"]["env"]


def test_no_python_is_a_usage_error(model):
    """Whose vLLM is asked is never guessed."""
    with pytest.raises(UsageError) as error:
        run(model, "--gpu", "H100")
    assert (2, True) == (error.value.exit_code, "--vllm-python" in error.value.hint)


def test_nothing_to_verify_is_a_usage_error(python):
    """Neither a model nor a command."""
    with pytest.raises(UsageError, match="nothing to verify"):
        run("--gpu", "H100", "--vllm-python", python)


def test_python_that_does_not_run_is_an_engine_error(model, tmp_path):
    """Exit code 5: the other environment, not the command."""
    with pytest.raises(EngineError) as error:
        run(model, "--gpu", "H100", "--vllm-python", tmp_path / "nowhere")
    assert 5 == error.value.exit_code


def test_catalog_model_without_its_file_is_said(python, monkeypatch, tmp_path):
    """The catalog has figures, vLLM wants the published file: without a network there is none."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel, match=r"config\.json"):
        run("Qwen/Qwen3-8B", "--gpu", "H100", "--offline", "--vllm-python", python)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (None, [])),
        (["Qwen/Qwen3-8B"], ("Qwen/Qwen3-8B", [])),
        (["vllm", "serve", "m"], (None, ["vllm", "serve", "m"])),
        (["A=1", "vllm", "serve", "m"], (None, ["A=1", "vllm", "serve", "m"])),
        (["./vllm-model", "vllm", "serve", "m"], ("./vllm-model", ["vllm", "serve", "m"])),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            (None, ["python3", "-m", "vllm.entrypoints.openai.api_server"]),
        ),
    ],
)
def test_words_are_a_model_a_command_or_both(words, expected):
    """What stands in front of the command is the model."""
    assert expected == verify.split(words)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --max-num-seqs 8",
        "vllm serve --max-num-seqs 8 m",
        "vllm serve --model m --max-num-seqs 8",
        "python -m vllm.entrypoints.openai.api_server --model=m --max-num-seqs 8",
    ],
)
def test_the_child_is_asked_about_the_folder(command):
    """However a command starts vLLM and names its model, vLLM's parser sees the folder and the same flags."""
    reading = parse(read.command_line(command.split()), inputs.surface("0.33.0"))
    assert ("vllm", "serve", "/folder", "--max-num-seqs", "8") == verify.about(reading, Path("/folder"))


def test_configuration_is_read_from_a_folder_or_a_file(model):
    """Both name the same published file."""
    assert CONFIG == verify.configuration(str(model), offline=True)
    assert CONFIG == verify.configuration(str(model / "config.json"), offline=True)

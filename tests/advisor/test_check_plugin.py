"""Our vLLM plugin in a command: a check says in one finding what the server's environment lacks."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_advisor.catalog import models
from vllm_advisor.check import judge, report
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.check.plugin import installed
from vllm_advisor.cli import check as check_command
from vllm_advisor.errors import EngineError
from vllm_advisor.model.config import read
from vllm_advisor.testing import TINY_LLAMA
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.surface import load


NAME = "advisor_mxfp4"
V33 = load("0.33.0")
DENSE = "Qwen/Qwen3-32B"
PACKED = TINY_LLAMA | {"quantization_config": {"quant_method": NAME, "format": "mxfp4-packed", "group_size": 32}}


def checked(line, plugins=None, version="0.33.0", model=None):
    """(level, text) of the plugin's findings on a command."""
    words, env = shlex.split(line), []
    while "=" in words[0]:
        env.append(tuple(words.pop(0).split("=", 1)))
    surface = load(version)
    reading = parse(Invocation(tuple(words), tuple(env)), surface)
    known = model or models.find(reading.model or "")
    found = judge.findings(reading, surface, None, known, plugins)
    return [(f.level, f.text) for f in found if f.id == "QNT-32"]


OURS = f"vllm serve {DENSE} --quantization {NAME}"


@pytest.mark.parametrize(
    ("line", "plugins", "version", "level", "text"),
    [
        (OURS, None, "0.33.0", "warning", "the server's environment has to have it"),
        (OURS, ("other",), "0.33.0", "error", "does not have it"),
        (OURS, (NAME,), "0.31.0", "error", "it supports vLLM 0.32 and 0.33, not 0.31.0"),
        (f"VLLM_PLUGINS=other {OURS}", (NAME,), "0.33.0", "error", "VLLM_PLUGINS lets only"),
    ],
)
def test_a_check_says_in_one_finding_what_the_plugin_lacks(line, plugins, version, level, text):
    """Not installed, not asked, not for this release, or shut out."""
    found = checked(line, plugins, version)
    assert [level] == [one for one, _ in found]
    assert text in found[0][1]


@pytest.mark.parametrize(
    ("line", "plugins"),
    [
        (OURS, (NAME,)),
        (f"VLLM_PLUGINS=other,{NAME} {OURS}", (NAME,)),
        (f"VLLM_PLUGINS=other vllm serve {DENSE}", ()),
        (f"vllm serve {DENSE} --quantization mxfp4", ()),
    ],
)
def test_a_check_is_silent_where_the_plugin_is_there_or_not_asked_for(line, plugins):
    """Other quantizations do not need it."""
    assert [] == checked(line, plugins)


def test_a_check_of_a_packed_checkpoint_asks_for_the_plugin_too():
    """No flag says so: the checkpoint does."""
    assert ["warning"] == [level for level, _ in checked("vllm serve ./packed", model=read(PACKED))]


def test_the_name_is_no_unknown_quantization():
    """Neither a value that vLLM lacks nor a format of checkpoints; another checkpoint's format is still refused."""

    def named(name):
        command = Invocation(("vllm", "serve", name, "--quantization", NAME))
        return {f.id for f in report.judge(command, V33, None, models.find(name)).findings}

    about = {"VAL-07", "QNT-25", "QNT-26", "QNT-09", "QNT-29"}
    assert set() == named(DENSE) & about
    assert {"QNT-25"} == named("Qwen/Qwen3-32B-AWQ") & about


def test_an_environment_is_asked_for_its_plugins_without_vllm(tmp_path, monkeypatch):
    """Entry points stand in the metadata of a distribution."""
    folder = tmp_path / "some_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{plugin.GROUP}]\n{NAME} = nowhere:register\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert NAME in installed(Path(sys.executable))
    with pytest.raises(EngineError, match="does not run"):
        installed(tmp_path / "python")


def test_check_asks_the_python_that_is_named(tmp_path):
    """`--vllm-python`: the environment without the plugin is an error, exit code 1."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho other\n")
    python.chmod(0o755)
    words = ["--json", "--offline", "--vllm-python", str(python), "--", *OURS.split()]
    done = CliRunner().invoke(check_command.app, words)
    found = [f for f in json.loads(done.stdout)["commands"][0]["findings"] if f["id"] == "QNT-32"]

    assert 1 == done.exit_code
    assert ["error"] == [f["level"] for f in found]

"""What vLLM loads at its start, with a stand-in for vLLM: it never breaks a server that does not ask for it."""

import importlib.metadata
import logging
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from vllm_mx_kernels import vllm_plugin
from vllm_mx_kernels.vllm_plugin import register, supports


QUANTIZATION = "vllm.model_executor.layers.quantization"
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def vllm(monkeypatch):
    """A vLLM of some version with a list of methods, without layers."""

    def make(version, methods=("fp8",)):
        fake, quantization = ModuleType("vllm"), ModuleType(QUANTIZATION)
        methods = quantization.QUANTIZATION_METHODS = [*methods]
        fake.__version__ = version
        quantization.register_quantization_config = lambda name: lambda _: methods.append(name)
        monkeypatch.setitem(sys.modules, "vllm", fake)
        monkeypatch.setitem(sys.modules, QUANTIZATION, quantization)
        return quantization

    return make


@pytest.mark.parametrize("version", ["0.31.1", "0.34.0", "1.0.0", "dev", "0.3.2"])
def test_other_release_is_one_line(vllm, caplog, version):
    """The line says what was met and what is supported; nothing is registered."""
    quantization = vllm(version)
    register()
    assert [f"advisor_mxfp4 is not registered: it supports vLLM 0.32 and 0.33, this is {version}"] == caplog.messages
    assert ["fp8"] == quantization.QUANTIZATION_METHODS


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cpu", "0.33.0", "0.33.1.dev4+g1a2b3c"])
def test_supported_releases(version):
    """Patch releases and builds of 0.32 and 0.33."""
    assert supports(version)


def test_registered_already_is_nothing_to_do(vllm, caplog):
    """vLLM calls it again in every process; a second call neither registers nor speaks."""
    quantization = vllm("0.33.0", ("fp8", "advisor_mxfp4"))
    register()
    assert (["fp8", "advisor_mxfp4"], []) == (quantization.QUANTIZATION_METHODS, caplog.messages)


def test_supported_release_with_missing_parts_is_one_warning(vllm, caplog):
    """A vLLM without the modules that the methods build on: the server starts, and the log says why not."""
    quantization = vllm("0.33.0")
    register()
    assert ["fp8"] == quantization.QUANTIZATION_METHODS
    assert [("vllm.advisor_mxfp4", logging.WARNING)] == [record[:2] for record in caplog.record_tuples]
    assert caplog.messages[0].startswith("advisor_mxfp4 is not registered: ModuleNotFoundError: No module named")


def test_without_vllm_nothing_breaks(caplog, monkeypatch):
    """The entry point of an environment whose vLLM is broken."""
    monkeypatch.setitem(sys.modules, "vllm", None)
    register()
    assert 1 == len(caplog.messages)


def test_entry_point_is_declared():
    """The group that vLLM loads in all of its processes names `register`; the writer has its script."""
    declared = PROJECT["entry-points"]["vllm.general_plugins"]
    point = importlib.metadata.EntryPoint("advisor_mxfp4", declared["advisor_mxfp4"], "vllm.general_plugins")
    assert vllm_plugin.register is point.load()
    assert "vllm_mx_kernels.quantize_cli:main" == PROJECT["scripts"]["advisor-quantize"]


def test_plugin_costs_a_server_nothing():
    """Before it is asked for, the plugin's module imports neither torch nor triton nor vLLM."""
    code = "import sys, vllm_mx_kernels.vllm_plugin; print({'torch', 'triton', 'vllm'} & set(sys.modules))"
    path = str(Path(vllm_plugin.__file__).parents[1])
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ("set()\n", "") == (done.stdout, done.stderr)

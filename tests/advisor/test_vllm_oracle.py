"""The oracle's parent: the protocol with a child that speaks it, and with children that do not."""

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.vllm.oracle import Oracle
from vllm_advisor.vllm.oracle_device import StandIn, stand_in
from vllm_advisor.vllm.oracle_verdict import Chosen, Refusal


CHILD = Path(__file__).parents[1] / "data/oracle_child.py"
H100 = StandIn("NVIDIA H100", "nvidia", "sm90", 85 << 30, 132, 8)


def oracle(folder, device=H100, **options):
    """A parent of the test's own child, in a folder that outlives it."""
    return Oracle(Path(sys.executable), device, run_folder=folder, child=CHILD, **options)


def serve(model):
    return ("vllm", "serve", model, "--max-num-seqs", "32")


def test_accepted_command_has_every_layer(tmp_path):
    """What the child says of layers arrives as values, vLLM's names untouched."""
    with oracle(tmp_path) as asked:
        verdict = asked.ask(serve("good"))
    expected = (
        Chosen("attention", "full", "FLASH_ATTN", 36, "head 128"),
        Chosen("linear", "Fp8LinearMethod", "CutlassFP8", 144),
    )
    assert (True, expected) == (verdict.accepted, verdict.layers)


def test_one_child_answers_many(tmp_path):
    """The process is started once; layers are asked for only where wanted."""
    with oracle(tmp_path) as asked:
        answers = [asked.ask(serve("good"), layers=wanted) for wanted in (True, False, True)]
    assert [2, 0, 2] == [len(a.layers) for a in answers]


def test_refused_command_keeps_the_parsers_words(tmp_path):
    """A refusal of the parser is an answer, not an error, and no later stage was reached."""
    with oracle(tmp_path) as asked:
        verdict = asked.ask(serve("refused"))
    assert Refusal("SystemExit", "unrecognized arguments: --nope") == verdict.parser
    assert (False, None, ()) == (verdict.accepted, verdict.configuration, verdict.layers)


def test_release_is_the_childs_own(tmp_path):
    """The version that answered is known, and a local part of it does no harm."""
    with oracle(tmp_path, version="0.33.0") as asked:
        assert "0.33.0+cu130" == asked.vllm


def test_other_release_is_an_error(tmp_path):
    """A vLLM that is not the one asked about is refused, with what to type."""
    with pytest.raises(EngineError, match=r"0\.24\.0 is asked about") as error, oracle(tmp_path, version="0.24.0"):
        pass
    assert "vllm==0.24.0" in error.value.hint


def test_environment_without_vllm_is_an_error(tmp_path):
    """No vLLM in the named environment: one sentence and how to mend it."""
    with pytest.raises(EngineError, match="no vllm in the environment") as error:
        oracle(tmp_path, H100._replace(name="no vllm")).__enter__()
    assert "uv pip install vllm" in error.value.hint


@pytest.mark.skipif(find_spec("vllm") is not None, reason="this environment has vLLM")
@pytest.mark.parametrize("vendor", ["nvidia", "amd", "cpu"])
def test_the_real_child_says_that_there_is_no_vllm(vendor, tmp_path):
    """The shipped child itself, in an environment without vLLM: the same sentence, whatever device it was to play."""
    with pytest.raises(EngineError, match="no vllm in the environment"):
        Oracle(Path(sys.executable), H100._replace(vendor=vendor), run_folder=tmp_path).__enter__()


def test_broken_vllm_is_an_error(tmp_path):
    """vLLM that cannot be imported says why."""
    with pytest.raises(EngineError, match=r"RuntimeError: libcudart\.so"):
        oracle(tmp_path, H100._replace(name="broken")).__enter__()


def test_python_that_is_not_there_is_an_error(tmp_path):
    """A path that is no Python is an engine error with a hint."""
    with pytest.raises(EngineError, match="does not run") as error:
        Oracle(tmp_path / "python", H100, run_folder=tmp_path, child=CHILD).__enter__()
    assert "--vllm-python" in error.value.hint


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("garbage", "no answer: 'INFO vLLM prints this'"),
        ("late", "no answer"),
        ("dies", "died: RuntimeError: out of luck"),
        ("odd", "cannot be read"),
    ],
)
def test_what_is_no_answer_is_an_error(model, message, tmp_path):
    """Text on stdout, an answer to another question, a dying child, a strange answer: each is named."""
    with oracle(tmp_path) as asked, pytest.raises(EngineError, match=message):
        asked.ask(serve(model))


def test_silence_ends(tmp_path):
    """A child that says nothing is given up after the time allowed, and killed."""
    begun = time.monotonic()
    with pytest.raises(EngineError, match=r"silent for 0\.2 s"), oracle(tmp_path, answer_s=0.2) as asked:
        asked.ask(serve("silent"))
    assert 10 > time.monotonic() - begun


def test_everything_that_the_child_started_ends_with_it(tmp_path):
    """The whole process group is killed: what a child forked is gone after the block."""
    with oracle(tmp_path) as asked:
        pid = int(dict(asked.ask(serve("forks")).effective)["pid"])
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or "Z" == stat.read_text().rpartition(")")[2].split()[0]


def test_no_token_reaches_the_child(tmp_path, monkeypatch):
    """The environment is chosen, not inherited: no token, no path of modules, no network, a folder of its own."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    with oracle(tmp_path, env=(("VLLM_ROCM_USE_AITER", "1"),)) as asked:
        seen = dict(asked.ask(serve("environment")).effective)
    assert ("1", "1", "1") == (seen["PYTHONSAFEPATH"], seen["HF_HUB_OFFLINE"], seen["VLLM_ROCM_USE_AITER"])
    assert (str(tmp_path), str(tmp_path)) == (seen["HOME"], seen["cwd"])
    assert set() == {"HF_TOKEN", "PYTHONPATH"} & seen.keys()


def test_log_is_kept_apart(tmp_path):
    """What the child and its libraries print is in the run folder's log, never among the answers."""
    with oracle(tmp_path) as asked:
        asked.ask(serve("good"))
    assert "an import that talks\n" == (tmp_path / "oracle.log").read_text()


def test_temporary_folder_is_gone_afterwards():
    """Without a run folder the child works in a temporary one, which ends with it."""
    with Oracle(Path(sys.executable), H100, child=CHILD) as asked:
        folder = asked.folder
        assert folder.is_dir()
    assert not folder.exists()


def test_unstarted_oracle_is_an_error(tmp_path):
    """Asking outside of the block is an error of ours, said as one."""
    with pytest.raises(EngineError, match="never started"):
        oracle(tmp_path).ask(serve("good"))


def test_stand_in_is_the_device_of_the_node():
    """Name, architecture, memory and number come from the catalog's machine."""
    from vllm_advisor.catalog import gpus

    node = gpus.node("8xH100")
    device = stand_in(node)
    assert ("nvidia", "sm90", 8, False) == (device.vendor, device.arch, device.devices, device.aiter)
    assert node.gpu.memory_bytes == device.memory_bytes
    assert stand_in(gpus.node("MI300X")).aiter


def test_no_process_is_left():
    """Nothing that a test of this file started still runs."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    assert [] == [c for c in commands if "oracle_child" in c]

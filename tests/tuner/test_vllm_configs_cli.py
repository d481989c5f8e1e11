"""`tuner files`: what is listed, what is found wrong, and its exit codes."""

import json
import sys

import pytest
from typer.testing import CliRunner

from vllm_advisor.errors import BadInput, EngineError, UsageError
from vllm_advisor.hardware import Vendor
from vllm_tuner.vllm_configs import table
from vllm_tuner.vllm_configs.cli import app
from vllm_tuner.vllm_configs.defaults import Where
from vllm_tuner.vllm_configs.shapes import Shape
from vllm_tuner.vllm_configs.table import Tuned


QWEN, GPU = "Qwen/Qwen3-30B-A3B", "H100 SXM"
NAME = "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json"
SHAPE = Shape(128, 768, 2048, 8, 768)
WHERE = Where((0, 33, 0), Vendor.NVIDIA, "sm90")
OURS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}


def run(*words, env=None):
    """(exit code, stdout); an expected error is raised."""
    found = CliRunner().invoke(app, [*words, "--offline"], env={"VLLM_TUNED_CONFIG_FOLDER": "", **(env or {})})
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout


@pytest.fixture
def folder(tmp_path):
    """A folder with one table that is right."""
    made = table.complete([Tuned(16, 16, OURS)], WHERE, SHAPE)
    table.write(tmp_path / "tuned", SHAPE.file("NVIDIA_H100_80GB_HBM3"), made)
    return tmp_path / "tuned"


def test_list_names_the_files_and_their_reader():
    """Without a word before the model, and with options before it."""
    for words in ((QWEN, "--gpu", GPU), ("--gpu", GPU, QWEN), ("list", QWEN, "--gpu", GPU)):
        code, said = run(*words)
        assert 0 == code
        assert NAME in said
        assert "experts run on TRITON: a tuned file is read" in said


def test_list_as_json(folder):
    """The same, for programs; the folder comes from vLLM's own variable."""
    code, said = run(QWEN, "--gpu", GPU, "--tp", "4", "--json", env={"VLLM_TUNED_CONFIG_FOLDER": str(folder)})
    found = json.loads(said)
    assert (0, "TRITON", "always", "0.33.0") == (code, found["backend"], found["reads"], found["vllm"])
    assert {"name": NAME.replace("768", "192"), "shipped": True, "present": False} == found["files"][0]
    here = json.loads(run(QWEN, "--gpu", GPU, "--folder", str(folder), "--json")[1])
    assert [True, False] == [file["present"] for file in here["files"]]


def test_list_says_that_nobody_reads():
    """MXFP4 experts on AMD: the names are shown as what nobody looks for."""
    code, said = run("openai/gpt-oss-120b", "--gpu", "MI300X")
    assert 0 == code
    assert "a tuned file is never read" in said
    assert "file (nobody looks for it)" in said


def test_check_of_a_good_folder(folder):
    """Nothing is wrong: exit 0."""
    code, said = run("check", str(folder), QWEN, "--gpu", GPU)
    assert (0, True) == (code, "nothing is wrong with it" in said)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tp", "4"), "no rank of this plan holds that shape"),
        (("--device-name", "NVIDIA H100 PCIe"), "it is for NVIDIA_H100_80GB_HBM3, this device is NVIDIA_H100_PCIe"),
        (("--moe-backend", "flashinfer_cutlass"), "nobody reads it: FLASHINFER_CUTLASS has its own tiles"),
        (("--env", "VLLM_BATCH_INVARIANT=1"), "nobody reads it: VLLM_BATCH_INVARIANT=1 keeps vLLM from looking"),
    ],
)
def test_check_of_a_folder_that_would_not_be_read(folder, words, says):
    """Another split, another device, another kernel: exit 1 and a line that says which."""
    code, said = run("check", str(folder), QWEN, "--gpu", GPU, *words)
    assert (1, True) == (code, says in said)


def test_check_of_an_empty_folder(tmp_path):
    """No file for experts: exit 1."""
    code, said = run("check", str(tmp_path), QWEN, "--gpu", GPU, "--json")
    assert (1, "no file for experts in it") == (code, json.loads(said)["problems"][0]["message"])


def test_check_of_a_log(folder, tmp_path):
    """The server's own words decide: read is 0, missing is 1."""
    log = tmp_path / "server.log"
    log.write_text(f"INFO 11-29 20:31:07 [fused_moe.py:1153] Using configuration from {folder / NAME} for MoE layer.\n")
    words = ("check", str(folder), QWEN, "--gpu", GPU, "--log", str(log))
    assert (0, True) == (run(*words)[0], "log: read: vLLM used" in run(*words)[1])
    log.write_text(
        "WARNING 11-29 20:31:07 [fused_moe.py:1166] Using default MoE config. Performance might be sub-optimal! "
        f"Config file not found at /other/{NAME}\n"
    )
    assert (1, True) == (run(*words)[0], f"log: missing: vLLM found no {NAME}" in run(*words)[1])


@pytest.fixture
def loader(tmp_path):
    """An interpreter that reads the folder as vLLM would, or says that it found nothing."""

    def make(*, reads):
        path = tmp_path / "python"
        path.write_text(f"""#!{sys.executable}
import json, os, sys
asked = json.loads(sys.stdin.readline())
assert "NVIDIA_H100_80GB_HBM3" == asked["device"]["name"], asked
path = os.path.join(os.environ["VLLM_TUNED_CONFIG_FOLDER"], {NAME!r})
table = json.load(open(path))
table = {{k: v for k, v in table.items() if k.isdigit()}}
batches = asked["shapes"][0]["batches"]
near = [table[min(table, key=lambda k: abs(int(k) - b))] for b in batches]
said = {{"name": {NAME!r}, "path": path if {reads} else "", "table": table, "chosen": near, "default": near}}
print(json.dumps({{"vllm": "0.33.0", "device": asked["device"]["name"], "shapes": [said]}}))
""")
        path.chmod(0o755)
        return str(path)

    return make


def test_check_with_proof(folder, loader):
    """The loader is asked under a stand-in of the device whose name the file has."""
    words = ("check", str(folder), QWEN, "--gpu", GPU, "--prove", "--vllm-python")
    code, said = run(*words, loader(reads=True))
    assert (0, True) == (code, f"{NAME}: proved, vLLM read what the file holds" in said)
    code, said = run(*words, loader(reads=False), "--json")
    assert (1, False) == (code, json.loads(said)["proof"]["files"][0]["proved"])


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("check", "/nowhere", QWEN, "--gpu", GPU), BadInput, "/nowhere is no folder"),
        (("check", ".", QWEN, "--gpu", GPU, "--prove"), UsageError, "no vLLM to ask"),
        ((QWEN, "--gpu", GPU, "--env", "X"), UsageError, "NAME=VALUE"),
        (("Qwen/Qwen3-8B", "--gpu", GPU), BadInput, "has no experts"),
        (("tune", ".", QWEN, "--gpu", GPU), UsageError, "no vLLM to ask"),
        (
            ("tune", ".", "openai/gpt-oss-120b", "--gpu", "MI300X", "--vllm-python", "x"),
            UsageError,
            "nobody would read",
        ),
        (
            ("tune", ".", QWEN, "--gpu", GPU, "--vllm-python", "/none", "--batches", "x"),
            UsageError,
            "no batch sizes",
        ),
        (("tune", ".", QWEN, "--gpu", GPU, "--vllm-python", "/none"), EngineError, "/none does not run"),
        (("tune", ".", QWEN, "--gpu", GPU, "--vllm-python", "/none", "--strategy", "luck"), UsageError, "luck"),
    ],
)
def test_bad_words_are_one_line(words, error, says):
    """Each is an error with a hint, never a traceback."""
    with pytest.raises(error) as caught:
        run(*words)
    assert says in caught.value.message
    assert caught.value.hint

"""Proof that vLLM read what was written: the child's answers judged, a server's log judged, and children that fail."""

import json
import sys
from pathlib import Path

import pytest

from vllm_advisor.errors import BadInput, EngineError
from vllm_advisor.hardware import Vendor
from vllm_tuner.vllm_configs import prove, serverlog, table
from vllm_tuner.vllm_configs.defaults import Where, default_config
from vllm_tuner.vllm_configs.shapes import Shape
from vllm_tuner.vllm_configs.table import Tuned


H100 = Where((0, 33, 0), Vendor.NVIDIA, "sm90")
PLAIN = Shape(8, 1792, 4096, 2, 1792)
NAME = PLAIN.file("NVIDIA_H100_80GB_HBM3").name
OURS = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}
WRITTEN = table.complete([Tuned(16, 16, OURS)], H100, PLAIN)
BATCHES = (1, 16, 17, 512)
PACKAGE = "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/fused_moe/configs"


def answer(folder, **changed):
    """What the child says when all is well."""
    return {
        "name": NAME,
        "path": str(folder / NAME),
        "table": {str(batch): config for batch, config in WRITTEN.entries},
        "chosen": [WRITTEN.nearest(batch) for batch in BATCHES],
        "default": [default_config(H100, PLAIN, batch) for batch in BATCHES],
    } | changed


def test_what_was_written_and_read_is_proved(tmp_path):
    """Same file, same table, same tiles, and no untuned batch size lost its default."""
    assert prove.Proof(NAME, str(tmp_path / NAME), (), ()) == prove.judge(answer(tmp_path), tmp_path, WRITTEN, BATCHES)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"path": ""}, f"vLLM looks for {NAME}, and it found none; the folder holds no such file"),
        ({"path": f"{PACKAGE}/{NAME}"}, f"and it read {PACKAGE}/{NAME}"),
        ({"table": {"1": OURS}}, "batch size 1: vLLM read {'BLOCK_SIZE_M': 32"),
        ({"table": None}, "vLLM read None"),
        ({"chosen": [OURS] * 4}, "batch size 1: vLLM takes {'BLOCK_SIZE_M': 32"),
    ],
)
def test_what_was_not_read_is_not_proved(tmp_path, changed, says):
    """Another file, another table or other tiles: each says how it differs."""
    found = prove.judge(answer(tmp_path, **changed), tmp_path, WRITTEN, BATCHES)
    assert not found.proved
    assert says in found.wrong[0]


def test_untuned_batch_that_lost_its_default_is_named(tmp_path):
    """By vLLM's own account of its default, whatever ours says."""
    other = [default_config(H100, PLAIN, batch) | {"num_stages": 7} for batch in BATCHES]
    found = prove.judge(answer(tmp_path, default=other), tmp_path, WRITTEN, (2, 16, 17, 500))
    assert (2, 500) == found.untuned


def test_nothing_written_and_nothing_read_is_proved(tmp_path):
    """A shape without a table must get none from this folder; the package's own is no harm."""
    assert prove.judge(answer(tmp_path, path=""), tmp_path, None, BATCHES).proved
    assert prove.judge(answer(tmp_path, path=f"{PACKAGE}/{NAME}"), tmp_path, None, BATCHES).proved
    assert not prove.judge(answer(tmp_path), tmp_path, None, BATCHES).proved


@pytest.fixture
def python(tmp_path):
    """Makes an interpreter that runs a script of our own, whatever it is asked to run."""

    def make(body):
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
        path.chmod(0o755)
        return path

    return make


def test_child_gets_the_folder_and_its_answer_is_judged(python, tmp_path):
    """The variable that a server would get is the child's, and nothing of the caller's environment but paths."""
    said = json.dumps({"vllm": "0.33.0", "device": "NVIDIA H100 80GB HBM3", "shapes": [answer(tmp_path)]})
    fake = python(f"""asked = json.loads(sys.stdin.readline())
found = json.loads({said!r})
assert os.environ["VLLM_TUNED_CONFIG_FOLDER"] == {str(tmp_path)!r} and "PYTHONPATH" not in os.environ
batches = asked["shapes"][0]["batches"]
found["shapes"][0]["chosen"] = found["shapes"][0]["default"] = [found["shapes"][0]["table"]["1"]] * len(batches)
print(json.dumps(found))""")
    heard = prove.prove(fake, None, tmp_path, [(PLAIN, WRITTEN)])
    assert ("0.33.0", "NVIDIA H100 80GB HBM3", False) == (heard.vllm, heard.device, heard.proofs[0].proved)
    assert heard.proofs[0].wrong[0].startswith("batch size 16: vLLM takes")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit(3)", "vLLM's process ended with 3: it wrote nothing"),
        ("print('no json')", "vLLM's process ended with 0"),
        ("print(json.dumps({'vllm': '1'}))", "an answer that cannot be read"),
        ("print(json.dumps({'failed': {'error': 'ModuleNotFoundError', 'text': 'no vllm in this environment'}}))",
         "no vllm in the environment of"),
        ("print(json.dumps({'failed': {'error': 'RuntimeError', 'text': 'two\\nlines'}}))", "RuntimeError: two lines"),
    ],
)  # fmt: skip
def test_child_that_fails_is_one_line(python, tmp_path, body, says):
    """Each way to fail is an engine error, with the last words."""
    with pytest.raises(EngineError) as caught:
        prove.prove(python(body), None, tmp_path, [(PLAIN, WRITTEN)])
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_no_such_python_is_one_line(tmp_path):
    """A path that is nothing."""
    with pytest.raises(EngineError, match="does not run: No such file"):
        prove.prove(tmp_path / "python", None, tmp_path, [(PLAIN, WRITTEN)])


# A server's log in its own form: process, level, date, place in the source, and the two lines that matter.
HEAD = "(EngineCore_DP0 pid=4711) INFO 11-29 20:31:07 [fused_moe.py:1153] "
WARN = "(EngineCore_DP0 pid=4711) WARNING 11-29 20:31:07 [fused_moe.py:1166] "
BACKEND = "(EngineCore_DP0 pid=4711) INFO 11-29 20:30:58 [fp8.py:424] Using MARLIN Fp8 MoE backend"
USED = HEAD + "Using configuration from {} for MoE layer."
MISSED = WARN + "Using default MoE config. Performance might be sub-optimal! Config file not found at {}"


def verdict(tmp_path, *lines, folder=Path("/tuned")):
    """(state, words) for our file in a log of these lines."""
    log = tmp_path / "server.log"
    log.write_text("\n".join(["INFO 11-29 20:30:50 [api_server.py:1] vLLM API server version 0.33.0", *lines, ""]))
    (found,) = serverlog.judge(serverlog.read(log), [NAME], folder)
    return found.state, found.says


def test_log_that_names_our_file_is_a_proof(tmp_path):
    """The path is the one that was written, whatever colours the line has."""
    line = "\x1b[36m" + USED.format(f"/tuned/{NAME}") + "\x1b[0m"
    assert ("read", f"vLLM used /tuned/{NAME}") == verdict(tmp_path, line)


def test_log_of_a_container_names_its_own_path(tmp_path):
    """Mounted elsewhere: read all the same, and said."""
    state, says = verdict(tmp_path, USED.format(f"/mnt/cfg/{NAME}"))
    assert ("read", True) == (state, "/mnt/cfg/" in says and says.endswith("its name for that folder"))


def test_log_that_names_the_package_is_none(tmp_path):
    """vLLM took the file that it brings along: the folder was not seen."""
    assert "packaged" == verdict(tmp_path, USED.format(f"{PACKAGE}/{NAME}"))[0]


def test_log_that_misses_our_file_says_where_it_looked(tmp_path):
    """Names hold commas, as the list of places does."""
    state, says = verdict(tmp_path, MISSED.format(f"/wrong/{NAME}, {PACKAGE}/{NAME}"))
    assert "missing" == state
    assert f"at /wrong/{NAME} or {PACKAGE}/{NAME} and" in says


def test_log_that_asks_for_another_name_says_which(tmp_path):
    """Another split: the name that was looked for stands in the log."""
    other = NAME.replace("N=1792", "N=896")
    state, says = verdict(tmp_path, MISSED.format(f"{PACKAGE}/{other}"))
    assert ("silent", f"vLLM asked for {other} instead: another split, device or dtype") == (state, says)


def test_log_of_another_kernel_says_so(tmp_path):
    """Marlin never looks."""
    assert ("silent", "vLLM never looked: the experts run on MARLIN") == verdict(tmp_path, BACKEND)


def test_log_without_a_word_is_silent(tmp_path):
    """Before the first batch there is nothing to be read."""
    state, says = verdict(tmp_path)
    assert ("silent", True) == (state, "has not looked yet" in says)


def test_recorded_log_of_a_whole_start():
    """A log of 0.24 in full: the name is found in it, and where vLLM looked."""
    name = "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json"
    reading = serverlog.read(Path(__file__).parents[1] / "data" / "logs" / "healthy-0.24.log")
    (found,) = serverlog.judge(reading, [name], Path("/tuned"))
    assert "missing" == found.state
    assert found.says.startswith(f"vLLM found no {name} at /usr/local/lib/")


def test_log_that_is_not_there_is_one_line(tmp_path):
    """A path that is nothing."""
    with pytest.raises(BadInput, match="No such file"):
        serverlog.read(tmp_path / "none.log")

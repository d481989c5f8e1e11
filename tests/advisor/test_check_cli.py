"""`advisor check` as a person or a pipeline calls it: streams, exit codes, text, JSON, SARIF, the corrected command."""

import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_advisor.check import fix, read, report
from vllm_advisor.errors import BadInput
from vllm_advisor.vllm import surface


def check(*args: str, code: int = 0, cwd=None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_advisor", "check", "--offline", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    assert code == done.returncode, done.stderr + done.stdout
    return done


# Faults that no knowledge of a device is needed for; the served address is closed, so that nothing else is to be said.
GOOD = ("--", "vllm", "serve", "Qwen/Qwen3-8B", "--host", "127.0.0.1", "--api-key", "k", "--max-model-len", "32k")


def test_a_clean_command_exits_0():
    """And says for which version and why that one."""
    out = check(*GOOD).stdout

    assert "Qwen/Qwen3-8B, vLLM 0.33.0 (the default)" in out
    assert " error " not in out


def test_errors_exit_1_with_id_text_hint_and_source():
    """As text: one finding after another, then their number."""
    out = check(*GOOD, "--swap-space", "4", code=1).stdout

    assert "error   FLG-02  --swap-space is gone from vLLM 0.33.0" in out
    assert "→ leave it out" in out
    assert "1 error" in out.splitlines()[-1]


def test_without_the_dashes_the_command_is_read_too():
    """Options that are not ours belong to the command."""
    assert "FLG-02" in check("vllm", "serve", "Qwen/Qwen3-8B", "--swap-space", "4", code=1).stdout
    assert "FLG-02" in check("vllm serve Qwen/Qwen3-8B --swap-space 4", code=1).stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "nothing to check"),
        (("nothere.sh",), "cannot be read"),
        (("--", "ls", "-l"), "no vLLM server"),
        (("--vllm", "0.1", *GOOD), "no surface"),
        (("--gpu", "8xH1", *GOOD), "H1"),
        (("--json", "--fix", *GOOD), "both write to stdout"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, says):
    """Nothing on stdout."""
    done = check(*args, code=2)

    assert ("", True) == (done.stdout, says in done.stderr)


def test_fix_prints_only_the_corrected_command():
    """What is left to say goes to stderr; a second look finds no more of it."""
    done = check("--fix", *GOOD, "--swap-space", "4", "--kv-cache-dtype", "fp8_e4m3fn", "--tp", "2")
    words = done.stdout.replace("\\\n", " ").split()

    assert ["vllm", "serve", "Qwen/Qwen3-8B"] == words[:3]
    assert ("--swap-space" not in words, "fp8_e4m3" in words, "--tensor-parallel-size" in words) == (True, True, True)
    assert "error" not in check("--", *words).stdout


def test_fix_exits_1_where_an_error_is_left():
    """Broken JSON cannot be mended without asking."""
    done = check("--fix", *GOOD, "--speculative-config", "{broken", code=1)

    assert "error VAL-05" in done.stderr


COMPOSE = """\
services:
  a:
    image: vllm/vllm-openai:v0.24.0
    command: Qwen/Qwen3-8B --max-num-queued-reqs 4
  b:
    image: vllm/vllm-openai:v0.33.9
    command: Qwen/Qwen3-8B --calculate-kv-scales
"""


def test_every_command_of_a_file_is_judged_for_its_own_image(tmp_path):
    """The tag says the version; of a patch that we do not have, its release."""
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    first, second = json.loads(check("compose.yaml", "--json", code=1, cwd=tmp_path).stdout)["commands"]

    assert ("0.24.0", "the image's tag", "compose.yaml: services.a") == (
        first["vllm"],
        first["vllm_from"],
        first["place"],
    )
    assert ("0.33.0", True) == (second["vllm"], "0.33.9" in second["vllm_from"])
    assert ("FLG-03", 4) == next((f["id"], f["line"]) for f in first["findings"] if f["level"] == "error")


def test_vllm_beats_the_images_tag(tmp_path):
    """What is asked for is what counts."""
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    document = json.loads(check("compose.yaml", "--json", "--vllm", "0.32.0", code=1, cwd=tmp_path).stdout)

    assert {("0.32.0", "--vllm")} == {(c["vllm"], c["vllm_from"]) for c in document["commands"]}


def test_json_has_stable_keys():
    """A program may rely on them, and on the sums."""
    document = json.loads(check("--json", "A=1", *GOOD[1:], "--swap-space", "4", code=1).stdout)
    (command,) = document["commands"]
    finding = next(f for f in command["findings"] if f["id"] == "FLG-02")

    assert ["schema", "advisor", "errors", "warnings", "notes", "commands"] == list(document)
    assert [
        "place", "vllm", "vllm_from", "node", "model", "argv", "env", "findings", "model_unknown", "fixed",
    ] == list(command)  # fmt: skip
    assert [
        "id", "level", "text", "hint", "source", "subject", "word", "where", "line", "fixable",
    ] == list(finding)  # fmt: skip
    assert (1, {"A": "1"}, True) == (document["errors"], command["env"], finding["fixable"])
    assert "--swap-space" not in command["fixed"]["argv"]


def test_sarif_goes_to_a_file_beside_the_text(tmp_path):
    """Or alone to stdout."""
    (tmp_path / "serve.sh").write_text("vllm serve Qwen/Qwen3-8B --swap-space 4\n")
    shown = check("serve.sh", "--sarif", "out.sarif", code=1, cwd=tmp_path).stdout
    alone = check("serve.sh", "--sarif", "-", code=1, cwd=tmp_path).stdout
    document = json.loads((tmp_path / "out.sarif").read_text())

    assert ("2.1.0", document) == (document["version"], json.loads(alone))
    assert "FLG-02" in shown


def test_what_is_not_known_is_said():
    """An unknown model and no device: the checks that need neither still run."""
    out = check("--", "vllm", "serve", "nobody/nothing", "--swap-space", "4", code=1).stdout

    assert "FLG-02" in out
    assert ("nobody/nothing is not" in out, "FIT-01" in out) == (True, True)


WORDS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from([
            "vllm", "serve", "m", "--", "-tp", "8", "--model", "--config", "docker", "run", "vllm/vllm-openai:v0.24.0",
            "sh", "-c", "vllm serve 'x", "A=1", "env", "-e", "-O", "-O3", "--compilation-config.mode", "{", "--port=",
            "-cc.a.b+", "--max-model-len", "1e999", "--max-num-seqs", "9" * 5000, "python", "-m", "-sc",
            "vllm.entrypoints.openai.api_server", "[" * 2000, "--enforce-eager=1", "-qfp8", "nan", "--no-", "--=", "-",
        ]),
    ),
    max_size=9,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS, version=st.sampled_from(surface.versions()), led=st.booleans())
def test_any_words_give_findings_or_one_error(words, version, led):
    """Never another exception, and what `--fix` prints can be read again."""
    try:
        invocation = read.command_line([*(["vllm", "serve"] if led else []), *words])
    except BadInput:
        return
    first = report.judge(invocation, surface.load(version))
    after = report.mended(first)

    assert all(f.text and f.source for f in first.findings)
    assert fix.shell(after.invocation).endswith("\n")


TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from([
            "vllm serve m", " -tp 8", "\n", "services:\n", "  a: ", "{image: vllm/vllm-openai, command: [m]}", "'", '"',
            "$(", "${A", "A=(", ")", "<<E", "\\", "&a [*a]", "kind: Pod\n", "[Service]\n", "ExecStart=", "- ", ": ",
            "export A=1;", "| ", "> ", "#", "\t", "if true; then ", "!!python/object:x", "? ", "---\n", "model: m\n",
            "2026-13-45", "0o9", "<<: *a\n", "%", "=", "`",
        ]),
        max_size=14,
    ).map("".join),
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, suffix=st.sampled_from(["sh", "yaml", "json", "service", ""]))
def test_any_file_gives_findings_or_one_error(tmp_path_factory, text, suffix):
    """Scripts, YAML and units that are none."""
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        found = read.file(path)
    except BadInput:
        return
    for one in found:
        report.mended(report.judge(one, surface.load("0.33.0")))


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=300), suffix=st.sampled_from(["sh", "yml", "service"]))
def test_any_bytes_give_findings_or_one_error(tmp_path_factory, raw, suffix):
    """Binary garbage is no text."""
    path = tmp_path_factory.getbasetemp() / f"bytes.{suffix}"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):
        read.file(path)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("command", "serve.sh"),
        ("compose", "compose.yaml"),
        ("k8s", "manifest.yaml"),
        ("systemd", "vllm.service"),
        ("yaml", "config.yaml"),
        ("json", "plan.json"),
    ],
)
def test_what_we_write_is_read_back_without_an_error(form, name, tmp_path):
    """Every form of `advisor recommend --format`, options and variables as in the command itself."""
    asked = ("recommend", "openai/gpt-oss-120b", "--gpu", "8xMI300X", "--offline")
    command = [sys.executable, "-m", "vllm_advisor", *asked, "--format"]
    written, plan = (
        subprocess.run([*command, f], capture_output=True, text=True, check=True).stdout for f in (form, "json")
    )
    (tmp_path / name).write_text(written)
    (found,) = read.file(tmp_path / name)
    wanted = json.loads(plan)
    loaded = surface.load("0.33.0")

    assert set(wanted["argv"][2:]) <= {*found.argv}
    assert form == "yaml" or wanted["env"].items() <= dict(found.env).items()
    assert 0 == report.judge(found, loaded).count("error")

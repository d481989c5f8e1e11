"""`tuner calibrate`: what it prints and writes, and one line for what cannot be."""

import json
import subprocess
import sys

import pytest

from vllm_advisor.errors import AdvisorError, BadInput, UsageError
from vllm_tuner.calibrate.prompts import LENGTHS, bundled, check_ids, of_file, of_text


runner = pytest.importorskip("typer.testing", reason="typer is not installed").CliRunner()


def call(*args):
    """The command's result; expected failures as they are raised, for `tuner` prints them."""
    from vllm_tuner.calibrate.cli import app

    return runner.invoke(app, [str(a) for a in args])


def encode(text):
    """A tokenizer of one token a letter."""
    return [ord(c) % 90 for c in text]


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path_factory):
    """Nothing is kept in the user's own store."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path_factory.mktemp('store')}/s.db")


@pytest.fixture
def model(tmp_path):
    """A tiny mixture of experts, and a file with prompts of token ids."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from vllm_tuner.calibrate import testing

    torch.set_num_threads(1)
    weights = testing.with_dead_expert(testing.tensors(testing.MOE), layer=0, expert=3)
    ids = tmp_path / "ids.jsonl"
    ids.write_text("".join(f"{json.dumps(p)}\n" for p in testing.prompts(6, 24, 96)))
    return testing.write_model(tmp_path / "model", testing.MOE, weights), ids


def test_page_and_overlay(model, tmp_path):
    """Scales, cache, losses, the dead expert and the command on stdout; an overlay that says how it was made."""
    folder, ids = model
    out = tmp_path / "out"
    result = call(folder, out, "--prompts", ids, "--expert-budget", 3000)

    assert 0 == result.exit_code, result.exception
    for said in (
        "6 prompts, 144 tokens, 2 layers",
        "scales (amax / 448)",
        "simulated FP8 cache with these scales",
        "mxfp4: relative error",
        "cold: layer 0 expert 3, 0 tokens",
        "their error shows up later",
        f"advisor recommend {out}",
        f"vllm serve {out} --kv-cache-dtype fp8",
    ):
        assert said in result.stdout
    assert "layer 2 of 2" in result.stderr
    assert 2 == len(json.loads((out / "calibration.json").read_text())["scales"])


def test_json_alone_writes_nothing(model, tmp_path):
    """Without OUT the answer is one document, and the disk is as before."""
    folder, ids = model
    before = sorted(tmp_path.rglob("*"))
    result = call(folder, "--prompts", ids, "--json", "--no-losses", "--expert-budget", 0)
    value = json.loads(result.stdout)

    assert before == sorted(tmp_path.rglob("*"))
    measured = {"prompts", "scales", "magnitudes", "cache", "quantization", "experts", "stopped"}
    assert measured | {"out", "form", "command"} == set(value)
    assert ([], None, {}) == (value["cache"]["skip_layers"], value["out"], value["quantization"])
    assert [0, 3] in value["experts"]["unreached"]
    assert all(low <= mid <= high for low, mid, high in [value["cache"]["kl_calibrated"]])


def test_same_seed_same_scales(model):
    """Two runs give the same bytes."""
    folder, ids = model
    args = (folder, "--prompts", ids, "--json", "--no-losses")

    assert call(*args).stdout == call(*args).stdout


def test_compressed_tensors_form_is_said_not_to_be_for_gfx94x(model, tmp_path):
    """The form that vLLM does not double says so."""
    folder, ids = model
    result = call(folder, tmp_path / "out", "--prompts", ids, "--no-losses", "--form", "compressed-tensors")

    assert "not for gfx94x" in result.stdout


def test_time_that_is_up_keeps_what_there_is_or_says_that_there_is_nothing(model, tmp_path):
    """A limit that ends before the scales are known writes no overlay."""
    folder, ids = model
    result = call(folder, tmp_path / "out", "--prompts", ids, "--budget", "0.001s")

    assert isinstance(result.exception, UsageError)
    assert "before every layer had its scales" in result.exception.message
    assert not (tmp_path / "out").exists()


def test_model_may_be_named_or_not(model):
    """`calibrate FOLDER` is `calibrate model FOLDER`; the help names all three commands."""
    folder, ids = model
    args = (folder, "--prompts", ids, "--json", "--no-losses", "--expert-budget", 0)
    help_text = call("-h").stdout

    assert call(*args).stdout == call("model", *args).stdout
    assert all(name in help_text for name in ("model", "list", "warm-up"))


def test_full_folder_is_refused_before_any_work(model, tmp_path):
    """Nothing is measured for an overlay that can't be written."""
    result = call(model[0], tmp_path)

    assert isinstance(result.exception, BadInput)
    assert "" == result.stdout


def test_model_without_tokenizer_says_what_to_do(model):
    """The bundled text needs the model's tokenizer.json; token ids don't."""
    result = call(model[0])

    assert isinstance(result.exception, BadInput)
    assert "--prompts" in result.exception.hint


def test_missing_torch_is_one_line(tmp_path):
    """Where torch is missing the command names the way to install it, before it reads anything."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vllm_tuner.calibrate.cli import app\n"
        f"app([{str(tmp_path / 'none')!r}], standalone_mode=False)"
    )
    child = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
                           capture_output=True, text=True, check=False)  # fmt: skip

    assert "UsageError: torch is not installed" in child.stderr


def test_help_loads_no_torch():
    """Help must not pay for what it does not use."""
    code = "import vllm_tuner.calibrate.cli, vllm_tuner.gate, vllm_tuner.quality_servers, vllm_tuner.kernels as k; "
    show = "k.largest('E4M3FN'); print({'torch', 'triton', 'vllm', 'safetensors', 'httpx'} & sys.modules.keys())"
    child = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}{show}"],
                           capture_output=True, text=True, check=True)  # fmt: skip

    assert "set()" == child.stdout.strip()


def test_text_has_many_kinds():
    """Prose, code, numbers and languages, under 30 kB, each section long enough to learn something from."""
    text = bundled()

    assert {"prose", "dialogue", "code", "data", "mathematics", "languages"} <= set(text)
    assert all(len(body) > 300 for body in text.values())
    assert 10_000 < sum(len(body.encode()) for body in text.values()) < 30_000


def test_prompts_vary_in_length():
    """Lengths from 16 on, the budget used up to the token, none longer than allowed, the text's start not repeated."""
    prompts = of_text(encode, budget=1000, longest=200, bos=1)

    assert 1000 == sum(map(len, prompts))
    assert [16, 64, 200, 200, 32] == [len(p) for p in prompts][:5]
    assert {1} == {p[0] for p in prompts}
    assert prompts[0][1:] != prompts[1][1:16]
    assert set(LENGTHS) == {len(p) for p in of_text(encode, budget=9000, longest=2048)} & set(LENGTHS)


def test_file_of_prompts(tmp_path):
    """Text, an object and token ids, a line each; cut to the budget; a line of one token is left out."""
    path = tmp_path / "prompts"
    path.write_text('hello\n\n{"prompt": "[x"}\n[3, 4, 5, 6]\n[1]\n[not json\n')

    assert [encode("hello"), encode("[x"), [3, 4, 5, 6], encode("[not json")] == of_file(
        path, lambda: encode, budget=99, longest=50
    )
    assert [encode("hell"), encode("[x"), [3, 4]] == of_file(path, lambda: encode, budget=8, longest=4)


@pytest.mark.parametrize("line", ['{"prompt": 3}', '{"text": "x"}', "[1.5, 2]", "[-1, 2]", '["a"]'])
def test_no_prompts_are_refused(tmp_path, line):
    """An object without a prompt, numbers that are no token ids: the file and line are named."""
    path = tmp_path / "prompts"
    path.write_text(line)

    with pytest.raises(BadInput, match="prompts:1 is no prompt"):
        of_file(path, lambda: encode, budget=9, longest=9)


def test_files_that_cannot_be_read(tmp_path):
    """A missing file, bytes that are no text, nothing usable: expected failures."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "short").write_text("x\n")
    for name in ("none", "binary", "short"):
        with pytest.raises(AdvisorError):
            of_file(tmp_path / name, lambda: encode, budget=9, longest=9)
    check_ids([[1, 2]], 3)
    with pytest.raises(BadInput, match="token 2"):
        check_ids([[1, 2]], 2)


def test_missing_library_is_a_usage_error():
    """The door translates a missing module into the way to install it."""
    from vllm_tuner.kernels import needed

    with pytest.raises(UsageError, match="no_such_module is not installed"):
        needed("no_such_module")

"""The shipped models: there, whole, found as people spell them, with their siblings, fast, and without a network."""

import json
import socket
import subprocess
import sys
import time

import pytest

from vllm_advisor.catalog import models
from vllm_advisor.catalog.models_codec import decode, encode
from vllm_advisor.catalog.models_groups import shape
from vllm_advisor.errors import BadInput, UnsupportedModel


PROVENANCES = {"verbatim", "assembled", "derived-quant"}


def test_at_least_150_models_are_served():
    """The bar of the product: a plan for 150 models without a network."""
    assert len(models.names()) >= 150
    assert tuple(sorted(models.names())) == models.names()


@pytest.mark.parametrize("name", models.names())
def test_every_entry_comes_back_from_its_file(name):
    """Each model is found under its name, says where it comes from, and encodes to the bytes of its file."""
    spec = models.find(name)
    written = json.loads((models.FOLDER / models.entries()[name].file).read_bytes())
    assert (name, written) == (spec.name, json.loads(json.dumps(encode(spec))))
    assert spec == decode(encode(spec))
    assert spec.provenance in PROVENANCES
    assert spec.source


@pytest.mark.parametrize("name", models.names())
def test_the_index_says_what_the_files_say(name):
    """A row of the index is a view of its file, never a second truth."""
    spec, row = models.find(name), models.entries()[name]
    seen = (spec.base_model, spec.quantization.scheme, spec.params, spec.provenance)
    assert (row.base, row.scheme, row.params, row.provenance) == seen
    assert row.base in models.entries()


def test_files_and_index_name_each_other():
    """No file without a row, no row without a file, and no two files that differ in case alone."""
    files = {path.name for path in models.FOLDER.glob("*.json")} - {models.INDEX}
    assert files == {row.file for row in models.entries().values()}
    assert len(files) == len({name.lower() for name in files})
    assert all(name == name.lower() and name.isascii() for name in files)


def test_no_nameless_build_is_served():
    """A build without a repository cannot be loaded by anyone."""
    assert [] == [name for name in models.names() if "/" not in name or name.startswith("local--")]


@pytest.mark.parametrize("name", models.names())
def test_siblings_share_the_shape_and_know_each_other(name):
    """Each sibling exists, has the listed scheme and the same shape, and lists this one too unless it is a mirror."""
    spec = models.find(name)
    for other, (listed, scheme) in zip(models.siblings(spec), spec.siblings, strict=True):
        assert (listed, scheme) == (other.name, other.quantization.scheme)
        assert shape(other) == shape(spec)
        assert spec.base_model == other.base_model
        assert name not in {listed for listed, _ in spec.siblings}


@pytest.mark.parametrize(
    ("name", "siblings"),
    [
        ("MiniMaxAI/MiniMax-M3", {"nvidia/MiniMax-M3-NVFP4"}),
        ("Qwen/Qwen3-30B-A3B", {"Qwen/Qwen3-30B-A3B-FP8", "RedHatAI/Qwen3-30B-A3B-NVFP4"}),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"Qwen/Qwen3-30B-A3B-Instruct-2507-FP8"}),
        ("Qwen/Qwen3-30B-A3B-FP8", {"Qwen/Qwen3-30B-A3B", "RedHatAI/Qwen3-30B-A3B-NVFP4"}),
        ("deepseek-ai/DeepSeek-V3", set()),
        ("openai/gpt-oss-120b", set()),
        ("zai-org/GLM-4.5-Air", {"zai-org/GLM-4.5-Air-FP8", "cpatonn/GLM-4.5-Air-AWQ-4bit"}),
        (
            "meta-llama/Meta-Llama-3.1-8B-Instruct",
            {"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8"},
        ),
        ("google/gemma-4-26B-A4B-it-qat-q4_0-unquantized", set()),
        ("cerebras/Qwen3-Coder-REAP-25B-A3B", set()),
    ],
)
def test_chosen_models_have_these_siblings(name, siblings):
    """Another date or tuning is another model, another format of the same one a sibling, a mirror neither."""
    assert siblings == {other for other, _ in models.find(name).siblings}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8_block"),
        ("openai/gpt-oss-120b", "mxfp4"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("nvidia/MiniMax-M3-NVFP4", "nvfp4_mixed"),
        ("Qwen/Qwen3-32B", "bf16"),
        ("Qwen/Qwen3-32B-AWQ", "int4"),
        ("Qwen/Qwen3-32B-FP8", "fp8_block"),
        ("RedHatAI/Qwen3-14B-FP8-dynamic", "fp8_channel"),
    ],
)
def test_a_checkpoint_says_its_own_scheme(name, scheme):
    """Some models are published quantized from the start: their own scheme is not bf16."""
    assert scheme == models.entries()[name].scheme


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("openai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("OpenAI/GPT-OSS-120B", "openai/gpt-oss-120b"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        (" MiniMax-M3 ", "MiniMaxAI/MiniMax-M3"),
        ("google/gemma-4-31b-it", "google/gemma-4-31B-it"),
    ],
)
def test_spelling_is_forgiven(typed, name):
    """Case does not matter, and the publisher may be left out where one model alone has the name."""
    assert name == models.find(typed).name


@pytest.mark.parametrize("typed", ["", "/", "gpt-oss", "MiniMax-M2.7-NVFP4", "acme/gpt-oss-120b", "../index", "index"])
def test_what_is_not_one_model_is_none(typed):
    """A part of a name, a name that two publishers have, another publisher's name, and a path are no answer."""
    assert models.find(typed) is None


@pytest.mark.parametrize("name", ["openai/whisper-large-v3", "BAAI/bge-base-en-v1.5", "whisper-large-v3-turbo"])
def test_a_refused_model_says_why(name):
    """A model that is known and cannot be served is not an unknown name."""
    with pytest.raises(UnsupportedModel, match=r"cannot be planned: \w+"):
        models.find(name)


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("opneai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("gpt-oss-12ob", "openai/gpt-oss-120b"),
        ("gptoss20b", "openai/gpt-oss-20b"),
        ("llama 3.1 8b instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen3-30B-A3B-Instruct-2508", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("deepseek-ai/DeepSeek-V3.3", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_the_nearest_name_comes_first(typed, first):
    """Three names, and the one that was meant is the first of them, whatever slipped in typing."""
    near = models.nearest(typed)
    assert (3, first) == (len(near), near[0])


@pytest.mark.parametrize("typed", ["", "/", "\0", "ü" * 300, "x"])
def test_nearest_names_exist_for_any_text(typed):
    """Even for nonsense there are three different names, the same each time."""
    assert len(set(models.nearest(typed))) == 3
    assert models.nearest(typed) == models.nearest(typed)
    assert models.nearest(typed, 0) == ()


def test_catalog_names_need_no_network(monkeypatch):
    """With sockets that cannot be made, a model and its siblings are still found."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    spec = models.find("MiniMaxAI/MiniMax-M3")
    assert ["nvidia/MiniMax-M3-NVFP4"] == [other.name for other in models.siblings(spec)]


def test_a_damaged_catalog_is_bad_input(monkeypatch, tmp_path):
    """A catalog without its files says so in one line."""
    models.names()
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    with pytest.raises(BadInput, match="the model catalog lacks"):
        models.find("openai/gpt-oss-120b")


FIND = """
import json, pathlib, sys, time  # what typer has loaded anyway
import vllm_advisor.model.spec
started = time.perf_counter()
from vllm_advisor.catalog import models
spec = models.find("Qwen/Qwen3-32B")
found = models.siblings(spec)
heavy = {"pydantic", "huggingface_hub", "difflib", "yaml"} & sys.modules.keys()
print(time.perf_counter() - started, len(found), sorted(heavy))
"""


def test_find_is_fast_in_a_fresh_process():
    """Import, find and siblings take no longer than Python's own start (loose), and load nothing heavy."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare = time.perf_counter() - start
    runs = [
        subprocess.run([sys.executable, "-c", FIND], check=True, capture_output=True, text=True, env=_environment())
        for _ in range(3)
    ]
    printed = [run.stdout.split(maxsplit=2) for run in runs]
    assert {("3", "[]\n")} == {(count, heavy) for _, count, heavy in printed}
    assert min(float(seconds) for seconds, _, _ in printed) < max(0.02, bare)


def _environment():
    return {"PYTHONPATH": str(models.FOLDER.parents[2])}

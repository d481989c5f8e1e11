"""A model on this disk: a folder, a config.json or the Hugging Face cache; broken ones are one line and a hint."""

import json
import os
import socket
import struct
from pathlib import Path

import pytest

from vllm_advisor.catalog import hub
from vllm_advisor.catalog.hub_files import MAX_BYTES
from vllm_advisor.errors import BadInput, UnknownModel, UnsupportedModel
from vllm_advisor.testing import TINY_LLAMA


LLAMA = TINY_LLAMA
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint's folder with a config.json."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def _safetensors(path, n_bytes):
    """A file with one tensor of `n_bytes` in its header; the tensor itself is not read."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(n_bytes))


def _cached(name, files, *, commit=COMMIT, ref="main"):
    """A repository in the cache, laid out as huggingface_hub does: blobs, refs, and links in snapshots."""
    home = Path(os.environ["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = home / "snapshots" / commit
    for place in (home / "blobs", snapshot, (home / "refs" / ref).parent):
        place.mkdir(parents=True, exist_ok=True)
    (home / "refs" / ref).write_text(commit)
    for number, (file, text) in enumerate(files.items()):
        (home / "blobs" / f"blob{number}").write_text(text)
        (snapshot / file).symlink_to(Path("../../blobs") / f"blob{number}")
    return snapshot


def test_a_folder_is_read(folder):
    """The config gives the shape, the name is what was typed, and the class says that it is local."""
    spec = hub.resolve(str(folder), offline=True)
    assert (str(folder), "local", 4, 64) == (spec.name, spec.provenance, spec.num_layers, spec.hidden_size)
    assert str(folder) not in spec.source
    assert spec.exact_weight_bytes is None


def test_a_relative_folder_keeps_its_relative_name(folder, monkeypatch):
    """Nothing of this machine lands in the name beyond what was typed."""
    monkeypatch.chdir(folder.parent)
    spec = hub.resolve(folder.name, offline=True)
    assert folder.name == spec.name
    assert str(folder.parent) not in repr(spec)


def test_a_config_file_is_read(folder):
    """The path of a config.json is as good as its folder, without the sizes of files beside it."""
    spec = hub.resolve(str(folder / "config.json"), offline=True)
    assert ("local", 4) == (spec.provenance, spec.num_layers)


def test_the_exact_size_comes_from_the_headers(folder):
    """Tensors in safetensors files are summed from the headers."""
    _safetensors(folder / "model-00001-of-00002.safetensors", 300)
    _safetensors(folder / "model-00002-of-00002.safetensors", 40)
    assert 340 == hub.resolve(str(folder)).exact_weight_bytes


def test_a_missing_shard_means_no_exact_size(folder):
    """The first of two shards alone would tell half of the size, so it tells nothing."""
    _safetensors(folder / "model-00001-of-00002.safetensors", 300)
    assert hub.resolve(str(folder)).exact_weight_bytes is None


def test_the_index_tells_the_size_of_missing_shards(folder):
    """An index states the total, whatever was downloaded."""
    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 987}, "weight_map": {}}')
    _safetensors(folder / "model-00001-of-00002.safetensors", 300)
    assert 987 == hub.resolve(str(folder)).exact_weight_bytes


def test_a_folder_wins_over_the_catalog(folder, monkeypatch, tmp_path_factory):
    """vLLM loads a folder of that name too, so the answer must be about the folder."""
    above = tmp_path_factory.mktemp("above")
    (above / "openai").mkdir()
    folder.rename(above / "openai" / "gpt-oss-20b")
    monkeypatch.chdir(above)
    assert "local" == hub.resolve("openai/gpt-oss-20b").provenance
    assert "verbatim" == hub.resolve("openai/gpt-oss-20b", trust_local=False).provenance


def test_modelopts_own_file_is_read(folder):
    """Older ModelOpt checkpoints say their format beside the config, and vLLM reads it there too."""
    (folder / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": []}})
    )
    assert "modelopt" == hub.resolve(str(folder)).quantization.method


def test_auto_map_is_ignored(folder):
    """Python files of a repository are neither imported nor named."""
    (folder / "evil.py").write_text("raise SystemExit('executed')")
    config = {**LLAMA, "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    spec = hub.resolve(str(folder))
    assert ("LlamaForCausalLM", False) == (spec.architecture, "evil" in repr(spec))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON: line 1, column 1"),
        (b"{", "is not JSON: line 1, column 2"),
        (b'{"a": 1,}', "is not JSON"),
        (b"\x80\x81\xfe\xff\x00", "is not text"),
        (b"[1, 2]", "holds a JSON list"),
        (b"null", "holds a JSON NoneType"),
        (b"[" * 100_000, "is not the JSON of a model config"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "is not the JSON of a model config"),
        (b'{"hidden_size": 1}', "neither an architecture nor a model_type"),
    ],
)
def test_a_broken_config_is_one_line(folder, content, says):
    """Empty, cut off, binary, deep, of another type or without content: one line with the place, and a hint."""
    (folder / "config.json").write_bytes(content)
    with pytest.raises(BadInput, match=says) as caught:
        hub.resolve(str(folder))
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_huge_config_is_not_opened(folder):
    """Eight MiB and one byte is no config, whatever is in it."""
    with (folder / "config.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadInput, match=r"has 8,388,609 bytes; a config has at most 8,388,608"):
        hub.resolve(str(folder))


def test_a_config_that_links_out_of_the_folder_is_refused(tmp_path):
    """A link to a file elsewhere could show what the folder's author must not see."""
    (tmp_path / "elsewhere.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BadInput, match="leads out of the model's folder"):
        hub.resolve(str(tmp_path / "model"))


def test_a_loop_of_links_is_one_line(tmp_path):
    """A folder and a config that link to themselves end, with a reason."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to("config.json")
    for place in ("loop", "model", "loop/config.json"):
        with pytest.raises(BadInput, match=r"(?i)loop|level|no folder|link"):
            hub.resolve(str(tmp_path / place), offline=True)


def test_a_folder_inside_itself_is_read_once(folder):
    """Nothing below the folder is walked, so a loop of folders does not matter."""
    (folder / "self").symlink_to(folder)
    assert 4 == hub.resolve(str(folder / "self" / "self")).num_layers


@pytest.mark.parametrize("make", ["folder", "pipe", "socket"])
def test_a_config_must_be_a_file(tmp_path, make):
    """A folder, a pipe or a socket of that name is refused without waiting on it."""
    path = tmp_path / "config.json"
    if make == "folder":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as listener, _Inside(tmp_path):
            listener.bind("config.json")
    with pytest.raises(BadInput, match="is not a regular file"):
        hub.resolve(str(tmp_path))


class _Inside:
    """The working folder for a while: a socket's path may not be long."""

    def __init__(self, path):
        self.path, self.before = path, Path.cwd()

    def __enter__(self):
        os.chdir(self.path)

    def __exit__(self, *_):
        os.chdir(self.before)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ((), "is an empty folder"),
        (("notes.txt",), "holds no config.json"),
        (("model-q4_k_m.gguf",), "holds GGUF weights"),
        (("model-q4_k_m.GGUF", "config.json"), "holds GGUF weights"),
        (("adapter_config.json",), "is a LoRA adapter"),
        (("model_index.json",), "is a diffusers pipeline"),
        (("params.json", "consolidated.safetensors"), "Mistral's own format"),
    ],
)
def test_another_kind_of_folder_is_named(tmp_path, files, says):
    """What is no transformers checkpoint is called what it is."""
    for file in files:
        (tmp_path / file).write_text(json.dumps(LLAMA))
    with pytest.raises(BadInput, match=says):
        hub.resolve(str(tmp_path))


def test_gguf_beside_safetensors_is_read(folder):
    """A folder that has both is planned from the safetensors files."""
    (folder / "model-q4.gguf").write_bytes(b"GGUF")
    _safetensors(folder / "model.safetensors", 12)
    assert 12 == hub.resolve(str(folder)).exact_weight_bytes


def test_a_gguf_file_is_named(tmp_path):
    """A path to a GGUF file is answered, not parsed."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadInput, match="is a GGUF file"):
        hub.resolve(str(tmp_path / "model.gguf"))


def test_the_cache_answers():
    """A repository that was downloaded before needs no network: links to blobs are the cache's own."""
    _cached("acme/One-8B", {"config.json": json.dumps(LLAMA)})
    spec = hub.resolve("acme/One-8B", offline=True)
    assert ("acme/One-8B", "hub", "the Hugging Face cache") == (spec.name, spec.provenance, spec.source)


def test_a_snapshots_folder_is_read():
    """The cache's folder may be given as a path as well."""
    snapshot = _cached("acme/One-8B", {"config.json": json.dumps(LLAMA)})
    assert "local" == hub.resolve(str(snapshot)).provenance


def test_the_cache_knows_revisions():
    """A branch is looked up by its reference, a commit by itself, and neither is another."""
    _cached("acme/One-8B", {"config.json": json.dumps(LLAMA)}, ref="v1")
    assert "the Hugging Face cache, revision v1" == hub.resolve("acme/One-8B", revision="v1", offline=True).source
    assert COMMIT in hub.resolve("acme/One-8B", revision=COMMIT, offline=True).source
    with pytest.raises(UnknownModel):
        hub.resolve("acme/One-8B", offline=True)


@pytest.mark.parametrize("reference", ["../../..", "", "zz" * 20, "0" * 39, "\0" * 40])
def test_a_damaged_reference_is_no_entry(reference):
    """Only a commit's 40 digits become part of a path."""
    snapshot = _cached("acme/One-8B", {"config.json": json.dumps(LLAMA)})
    (snapshot.parent.parent / "refs" / "main").write_text(reference)
    with pytest.raises(UnknownModel):
        hub.resolve("acme/One-8B", offline=True)


def test_a_cached_name_finds_its_base_model():
    """A quantization that the catalog does not have is still known as a sibling of a base model that it has."""
    base = hub.models.find("Qwen/Qwen3-8B")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 128,
        "hidden_size": base.hidden_size,
        "intermediate_size": base.intermediate_size,
        "num_hidden_layers": base.num_layers,
        "vocab_size": base.vocab_size,
        "num_attention_heads": base.attention_heads,
        "num_key_value_heads": base.kv_heads,
    }
    _cached("someone/Qwen3-8B-FP8", {"config.json": json.dumps(config)})
    spec = hub.resolve("someone/Qwen3-8B-FP8", offline=True)
    assert ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8") == (spec.base_model, spec.siblings[1][0])


def test_the_cache_may_be_elsewhere(monkeypatch, tmp_path):
    """HF_HUB_CACHE comes before HF_HOME, as in huggingface_hub."""
    _cached("acme/One-8B", {"config.json": json.dumps(LLAMA)})
    (Path(os.environ["HF_HOME"]) / "hub").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert "hub" == hub.resolve("acme/One-8B", offline=True).provenance


def test_an_unknown_name_gets_the_three_nearest():
    """Offline, a name that is close to one of ours is answered with it."""
    with pytest.raises(
        UnknownModel, match="'opneai/gpt-oss-120b' is neither in the catalog nor on this disk"
    ) as caught:
        hub.resolve("opneai/gpt-oss-120b", offline=True)
    assert "nearest in the catalog: openai/gpt-oss-120b, " in caught.value.hint


def test_the_environment_can_forbid_the_network():
    """HF_HUB_OFFLINE (set for all tests) counts as `offline`."""
    with pytest.raises(UnknownModel, match="the network is switched off"):
        hub.resolve("acme/none")


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "/no/such/folder",
        "./none",
        "~/none",
        "a/b/c",
        "a--b",
        "..",
        "../x",
        "a b",
        "a/..",
        "x\0y",
        "y" * 5000,
        "ü/ü",
        "-x/y",
    ],
)
def test_what_is_no_name_is_refused(name):
    """Text that can be no repository never reaches a path or an address; the nearest names come along."""
    with pytest.raises(BadInput) as caught:
        hub.resolve(name, offline=True)
    assert len(caught.value.message) < 300
    assert caught.value.hint


@pytest.mark.parametrize("revision", ["", "../x", "a b", "x\ny", "/x"])
def test_what_is_no_revision_is_refused(revision):
    """A revision becomes part of a path and an address, so it is checked first."""
    with pytest.raises(BadInput, match="is no revision"):
        hub.resolve("acme/One-8B", revision=revision, offline=True)


def test_a_refused_model_is_unsupported():
    """A model that we know and cannot plan is answered from the catalog, without a network."""
    with pytest.raises(UnsupportedModel):
        hub.resolve("openai/whisper-large-v3")


def test_the_catalog_does_not_answer_for_another_revision():
    """Our figures are of the current files; an older revision may differ."""
    assert "verbatim" == hub.resolve("openai/gpt-oss-20b", revision="main").provenance
    with pytest.raises(UnknownModel):
        hub.resolve("openai/gpt-oss-20b", revision="v0", offline=True)

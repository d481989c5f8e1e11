"""Which names mean the same model, and the script that makes the catalog."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_advisor.catalog import models
from vllm_advisor.catalog.models_groups import groups, siblings, stem
from vllm_advisor.model.spec import ModelSpec, Quantization
from vllm_advisor.testing import TINY_LLAMA


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "build_catalog.py"
BASE = ModelSpec("acme/One-8B", "LlamaForCausalLM", "llama", "bfloat16", 64, 4, 1000, 2048, 4, 2, (), ())
FP8 = Quantization("fp8", "fp8_block", 8, 8)


def _named(name, **changes):
    return replace(BASE, name=name, **changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia/MiniMax-M3-NVFP4", "minimax-m3"),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "qwen3-32b"),
        ("amd/Llama-3.1-405B-Instruct-FP8-KV", "llama-3.1-405b-instruct"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b-instruct"),
        ("unsloth/gemma-4-31B-it-unsloth-bnb-4bit", "gemma-4-31b-it"),
        ("jakiAJK/DeepSeek-R1-Distill-Qwen-7B_GPTQ-int4", "deepseek-r1-distill-qwen-7b"),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16", "qwen2.5-7b-instruct"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("deepseek-ai/DeepSeek-V4-Flash-Base", "deepseek-v4-flash-base"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-instruct-2507"),
        ("google/gemma-3-27b", "gemma-3-27b-pt"),
        ("FP8", "fp8"),
    ],
)
def test_a_stem_is_the_name_without_its_format(name, expected):
    """Words for number formats and publishers go; size, date and tuning stay."""
    assert expected == stem(name)


def test_a_group_needs_name_and_shape():
    """The same name with another number of layers is another model, as is another name with the same shape."""
    specs = [BASE, _named("x/One-8B-FP8"), _named("y/One-8B-FP8", num_layers=5), _named("acme/Two-8B")]
    found = [[spec.name for spec in group] for group in groups(specs)]
    assert [["acme/One-8B", "x/One-8B-FP8"], ["acme/Two-8B"], ["y/One-8B-FP8"]] == found


def test_the_base_comes_first_and_mirrors_are_no_siblings():
    """The base has no format in its name; an unquantized copy under a second name is not offered beside it."""
    mirror, fp8 = _named("zed/One-8B"), _named("acme/One-8B-FP8", quantization=FP8)
    (group,) = groups([fp8, mirror, BASE])
    assert "acme/One-8B" == group[0].name
    assert (("acme/One-8B-FP8", "fp8_block"),) == siblings(BASE, group)
    assert (("acme/One-8B-FP8", "fp8_block"),) == siblings(mirror, group)
    assert (("acme/One-8B", "bf16"),) == siblings(fp8, group)


def test_a_base_may_be_quantized_itself():
    """A model that is published in FP8 is its own base; a copy with a format in its name is a sibling."""
    native, converted = (
        _named("acme/One-8B", quantization=FP8),
        _named("z/One-8B-NVFP4", quantization=Quantization("modelopt", "nvfp4", 4)),
    )
    (group,) = groups([converted, native])
    assert (("z/One-8B-NVFP4", "nvfp4"),) == siblings(native, group)
    assert (("acme/One-8B", "fp8_block"),) == siblings(converted, group)


def test_a_checkpoint_from_elsewhere_is_adopted():
    """A repository that is not in the catalog gets the siblings of the base model that its name and shape say."""
    known = models.find("Qwen/Qwen3-8B")
    stranger = replace(known, name="someone/Qwen3-8B-W8A8", base_model="", siblings=())
    adopted = models.adopt(stranger)
    assert ("Qwen/Qwen3-8B", ("Qwen/Qwen3-8B", "bf16")) == (adopted.base_model, adopted.siblings[0])
    assert replace(stranger, num_layers=7) == models.adopt(replace(stranger, num_layers=7))


@pytest.fixture
def build():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("build_catalog", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LLAMA = TINY_LLAMA | {"_provenance": "prose that must not be copied"}
ROWS = (
    ("acme/One-8B", "acme--One-8B.json", "verbatim", "1000000"),
    ("acme/one-8b", "acme--one-8b-again.json", "verbatim", ""),
    ("x/One-8B-FP8", "x--One-8B-FP8.json", "derived-quant", "~500000"),
    ("acme/Ear", "acme--Ear.json", "assembled", ""),
    ("acme/Broken", "acme--Broken.json", "assembled", ""),
    ("One-8B-GGUF", "local--One-8B-GGUF.json", "derived-quant", ""),
)


@pytest.fixture
def configs(tmp_path):
    """A folder of hand-made configs and its INDEX.tsv."""
    special = {
        "acme/Ear": {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper",
            "is_encoder_decoder": True,
        },
        "acme/Broken": {**LLAMA, "hidden_size": "many"},
        "x/One-8B-FP8": {
            **LLAMA,
            "quantization_config": {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "activation_scheme": "dynamic",
            },
        },
    }
    lines = ["model_id\tfile\tprovenance_class\tparams_b\tparams_source\tsafetensors_total_size\ttotal_size_source"]
    for name, file, provenance, size in ROWS:
        (tmp_path / file).write_text(json.dumps(special.get(name, LLAMA)))
        lines.append(f"{name}\t{file}\t{provenance}\t\t\t{size}\t")
    (tmp_path / "INDEX.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_script_writes_a_catalog(build, configs, tmp_path, capsys):
    """Named models are written, a second spelling and nameless builds are not, refused ones carry the reason."""
    out = tmp_path / "out"
    build.main([str(configs), "--out", str(out)])
    index = json.loads((out / "index.json").read_text())
    assert {"acme/One-8B", "x/One-8B-FP8"} == index["models"].keys()
    assert ["x--one-8b-fp8.json", "acme/One-8B", "fp8_block"] == index["models"]["x/One-8B-FP8"][:3]
    assert {"acme/Ear"} == index["refused"].keys()
    assert "left out acme/Broken" in capsys.readouterr().out
    assert {"index.json", "acme--one-8b.json", "x--one-8b-fp8.json"} == {path.name for path in out.iterdir()}


def test_only_exact_sizes_and_no_prose_are_kept(build, configs, tmp_path):
    """A size with `~` is computed, so it is not exact; and sentences of the source do not carry over."""
    out = tmp_path / "out"
    build.main([str(configs), "--out", str(out)])
    one, fp8 = (json.loads((out / name).read_text()) for name in ("acme--one-8b.json", "x--one-8b-fp8.json"))
    assert (1000000, None) == (one["exact_weight_bytes"], fp8.get("exact_weight_bytes"))
    assert not [path for path in out.iterdir() if "prose" in path.read_text()]


def test_the_same_folder_gives_the_same_bytes(build, configs, tmp_path):
    """Two runs, the second over the first's output, leave the same files."""
    out = tmp_path / "out"
    build.main([str(configs), "--out", str(out)])
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "gone--model.json").write_text("{}")
    build.main([str(configs), "--out", str(out)])
    assert first == {path.name: path.read_bytes() for path in out.iterdir()}

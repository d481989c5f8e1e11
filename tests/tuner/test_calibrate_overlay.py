"""The overlay: what is written, what is left alone, and that vLLM itself finds the scales. No torch is needed here."""

import json
import struct
import subprocess
from pathlib import Path

import pytest

from vllm_advisor.errors import BadInput
from vllm_mx_kernels.checkpoint_files import layout, read_header
from vllm_tuner.calibrate.overlay import INDEX, SHARD, Form, ignored, serve_command, write
from vllm_tuner.calibrate.scales import LayerScales, scale_of


CHILD = Path(__file__).with_name("overlay_child.py")
SCALES = (LayerScales(0, 0.015, 0.0625, 0.25), LayerScales(1, 0.5, 3.0, 1.0))
NAMES = {
    "model.embed_tokens.weight": (8, 4), "model.norm.weight": (4,), "model.layers.0.self_attn.k_proj.weight": (2, 4),
    "model.layers.0.mlp.gate.weight": (2, 4), "model.layers.0.mlp.experts.0.up_proj.weight": (4, 4),
    "model.layers.0.mlp.experts.1.up_proj.weight": (4, 4), "lm_head.weight": (8, 4),
}  # fmt: skip


@pytest.fixture
def source(tmp_path):
    """A model folder of zeros, with a tokenizer and a licence."""
    folder = tmp_path / "source"
    folder.mkdir()
    header, entries = layout({name: ("BF16", shape) for name, shape in NAMES.items()})
    (folder / "model.safetensors").write_bytes(header + bytes(sum(e.size for e in entries)))
    (folder / "config.json").write_text('{"model_type": "qwen3_moe", "vocab_size": 8}')
    for name in ("tokenizer.json", "LICENSE", "chat_template.jinja", "model.py"):
        (folder / name).write_text(name)
    return folder


def contents(folder):
    """Every file's bytes and time."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}


def test_overlay_links_weights_and_adds_scales(source, tmp_path):
    """Weights and tokenizer by link, code of the model not at all; the index names every tensor."""
    before = contents(source)
    out = tmp_path / "out"
    write(source, out, SCALES, record={"made": "here"})

    links = {p.name for p in out.iterdir() if p.is_symlink()}
    assert {"model.safetensors", "tokenizer.json", "LICENSE", "chat_template.jinja"} == links
    assert {*links, SHARD, INDEX, "config.json", "calibration.json"} == {p.name for p in out.iterdir()}
    table = json.loads((out / INDEX).read_text())["weight_map"]
    assert set(NAMES) == {name for name, shard in table.items() if shard == "model.safetensors"}
    assert {"made": "here"} == json.loads((out / "calibration.json").read_text())
    assert before == contents(source)


def test_shard_holds_the_scales(source, tmp_path):
    """float32 [1], by the names that vLLM's remapping knows: .self_attn.k_scale becomes .self_attn.attn.k_scale."""
    write(source, tmp_path / "out", SCALES)
    data = (tmp_path / "out" / SHARD).read_bytes()
    held = {e.name: struct.unpack_from("<f", data, e.begin)[0] for e in read_header(tmp_path / "out" / SHARD)}

    prefix = "model.layers.{}.self_attn.{}_scale"
    expected = {prefix.format(s.layer, kind): getattr(s, kind) for s in SCALES for kind in "kvq"}
    assert {name: pytest.approx(value) for name, value in expected.items()} == held


def test_fp8_form_quantizes_nothing_but_the_cache(source, tmp_path):
    """Every matrix is in the ignore list, stacks of experts by their own name; norms need not be."""
    write(source, tmp_path / "out", SCALES)
    config = json.loads((tmp_path / "out/config.json").read_text())
    quantization = config["quantization_config"]

    assert ("qwen3_moe", 8) == (config["model_type"], config["vocab_size"])
    assert ("fp8", "dynamic") == (quantization["quant_method"], quantization["activation_scheme"])
    stacked = ["lm_head", "model.embed_tokens", "model.layers.0.mlp.experts", "model.layers.0.mlp.gate"]
    assert [*stacked, "model.layers.0.self_attn.k_proj"] == quantization["ignored_layers"]
    assert ["a.experts", "b"] == ignored(["a.experts.0.w1.weight", "a.experts.1.w1.weight", "b.weight"])


def test_compressed_tensors_form_has_a_scheme_and_no_groups(source, tmp_path):
    """As llm-compressor writes a checkpoint whose cache alone is quantized."""
    write(source, tmp_path / "out", SCALES, Form.COMPRESSED_TENSORS)
    quantization = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]

    assert ("compressed-tensors", {}) == (quantization["quant_method"], quantization["config_groups"])
    scheme = quantization["kv_cache_scheme"]
    assert (8, "float", "tensor", True) == tuple(scheme[k] for k in ("num_bits", "type", "strategy", "symmetric"))


def test_copies_where_links_do_not_reach(source, tmp_path):
    """With copy the folder stands alone."""
    write(source, tmp_path / "out", SCALES, copy=True)

    assert not [p for p in (tmp_path / "out").iterdir() if p.is_symlink()]
    assert (source / "model.safetensors").read_bytes() == (tmp_path / "out/model.safetensors").read_bytes()


def test_model_is_never_overwritten(source, tmp_path):
    """The model's own folder, a folder with something in it, and a file are refused; nothing is changed."""
    before = contents(source)
    (tmp_path / "file").write_text("x")
    for out in (source, tmp_path, tmp_path / "file"):
        with pytest.raises(BadInput, match="holds something"):
            write(source, out, SCALES)

    assert before == contents(source)


def test_broken_checkpoint_is_refused(source, tmp_path):
    """A shard that is no safetensors file."""
    (source / "model.safetensors").write_bytes(b"x" * 100)

    with pytest.raises(BadInput, match=r"model\.safetensors"):
        write(source, tmp_path / "out", SCALES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("amax", "scale"), [(448.0, 1.0), (44.8, 0.1), (0.0, 1.0), (1e-44, 1.0)])
def test_scale_of_a_magnitude(amax, scale):
    """amax / 448; 1 where that would be zero or a subnormal."""
    assert pytest.approx(scale) == scale_of(amax)


@pytest.mark.parametrize("amax", [-1.0, float("nan"), float("inf")])
def test_no_scale_of_nonsense(amax):
    """Negative, NaN and infinite magnitudes come from a broken pass."""
    with pytest.raises(ValueError, match="no largest magnitude"):
        scale_of(amax)


def test_command_turns_the_cache_on():
    """Without the flag the fp8 form's scales would lie unused."""
    assert "vllm serve ./m-kv --kv-cache-dtype fp8" == serve_command("./m-kv")


@pytest.fixture(scope="module")
def model(made_model):
    """One of the two models, and how many layers it has."""

    def make(name):
        out = made_model(name)
        return out, json.loads((out / "config.json").read_text())["num_hidden_layers"]

    return make


# bf16 holds a scale to 1/512: vLLM 0.32 keeps those of the fp8 form in the model's dtype.
BF16 = 2.0**-8
METHODS = {Form.FP8: ("Fp8KVCacheMethod", 2.0), Form.COMPRESSED_TENSORS: ("CompressedTensorsKVCacheMethod", 1.0)}


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("name", "form"), [("smollm2", Form.FP8), ("tiny-moe", Form.FP8), ("tiny-moe", Form.COMPRESSED_TENSORS)]
)
def test_vllm_finds_our_scales(vllm_python, model, tmp_path, name, form):
    """vLLM's model, loader, remapping and BaseKVCacheMethod.process_weights_after_loading hold what we wrote.

    No linear layer and no expert is quantized. On a platform with e4m3fnuz vLLM doubles the fp8 form's scales, once;
    those of compressed-tensors it leaves, which is why that form is not for gfx94x.
    """
    method, doubled = METHODS[form]
    source, layers = model(name)
    scales = [LayerScales(n, 0.01 * (n + 1), 0.02 * (n + 1), 0.03 * (n + 1)) for n in range(layers)]
    write(source, tmp_path / "out", scales, form)
    result = tmp_path / "result.json"
    child = subprocess.run(
        [vllm_python, CHILD, tmp_path / "out", result], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 0 == child.returncode, child.stderr[-2000:]
    found = json.loads(result.read_text())

    for platform, factor in (("fn", 1.0), ("fnuz", doubled)):
        expected = {
            f"model.layers.{s.layer}.self_attn.attn": pytest.approx([factor * x for x in (s.k, s.v, s.q)], rel=BF16)
            for s in scales
        }
        assert expected == found[platform]["scales"]
        unquantized = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod", "UnquantizedFusedMoEMethod"}
        assert {method} == set(found[platform]["methods"]) - unquantized

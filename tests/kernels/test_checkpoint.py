"""The checkpoint writer: what it writes is what the twins say, and a run that was stopped goes on."""

import json
import shutil
from types import SimpleNamespace

import pytest

from vllm_mx_kernels.checkpoint_files import BadFileError, layout, read_header
from vllm_mx_kernels.checkpoint_plan import INDEX, plan


torch = pytest.importorskip("torch", reason="weights are torch tensors")

from vllm_mx_kernels import checkpoint  # noqa: E402
from vllm_mx_kernels.checkpoint import STATE, write  # noqa: E402
from vllm_mx_kernels.mxfp4 import Mxfp4, dequantize_mxfp4_torch, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.quantize_cli import main  # noqa: E402


H, INNER = 64, 96
NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8"}
LAYER = "model.layers.0"
ATTENTION = {f"{LAYER}.self_attn.{name}_proj.weight": (H, H) for name in "qkvo"}
DENSE = ATTENTION | {
    f"{LAYER}.mlp.gate_proj.weight": (INNER, H),
    f"{LAYER}.mlp.up_proj.weight": (INNER, H),
    f"{LAYER}.mlp.down_proj.weight": (H, INNER),
    f"{LAYER}.input_layernorm.weight": (H,),
    "model.embed_tokens.weight": (100, H),
}


def drawn(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}


def store(path, tensors):
    """Write a safetensors file."""
    header, entries = layout({name: (NAMES[t.dtype], tuple(t.shape)) for name, t in tensors.items()})
    data = b"".join(tensors[e.name].contiguous().view(torch.uint8).numpy().tobytes() for e in entries)
    path.write_bytes(header + data)


def load(path):
    """The tensors of a file."""
    data, dtypes = path.read_bytes(), {name: dtype for dtype, name in NAMES.items()}
    return {
        e.name: torch.frombuffer(bytearray(data[e.begin : e.begin + e.size]), dtype=dtypes[e.dtype]).view(e.shape)
        for e in read_header(path)
    }


def folder(path, *shards, **config):
    """A model folder with these shards."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": H} | config))
    (path / "tokenizer.json").write_text("{}")
    names = [f"model-{i}.safetensors" for i, _ in enumerate(shards, 1)] if len(shards) > 1 else ["model.safetensors"]
    for name, tensors in zip(names, shards, strict=True):
        store(path / name, tensors)
    if len(shards) > 1:
        held = {key: name for name, tensors in zip(names, shards, strict=True) for key in tensors}
        (path / INDEX).write_text(json.dumps({"weight_map": held}))
    return path


@pytest.fixture
def dense(tmp_path):
    """A dense model in one file."""
    return folder(tmp_path / "model", drawn(DENSE))


@pytest.fixture
def sharded(tmp_path):
    """A dense model in three files."""
    tensors = drawn(DENSE)
    names = list(tensors)
    return folder(tmp_path / "sharded", *({n: tensors[n] for n in names[i::3]} for i in range(3)))


def written(source, out, ignore=(), mode="floor", tell=lambda _: None):
    return write(source, out, plan(source, ignore), mode, tell)


@pytest.mark.parametrize("mode", ["floor", "rceil", "even"])
def test_weights_are_the_twins_bit_for_bit(dense, tmp_path, mode):
    """Matrices become codes and scales in the checkpoint's order; everything else keeps its bytes."""
    before, result = load(dense / "model.safetensors"), written(dense, tmp_path / "out", mode=mode)
    after = load(tmp_path / "out/model.safetensors")
    for name in set(DENSE) - {f"{LAYER}.input_layernorm.weight", "model.embed_tokens.weight"}:
        expected = quantize_mxfp4_torch(before[name], mode)
        assert all(map(torch.equal, expected, (after[name], after[f"{name}_scale"])))
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    assert torch.equal(before[f"{LAYER}.input_layernorm.weight"], after[f"{LAYER}.input_layernorm.weight"])
    assert (7, ("model.embed_tokens",)) == (len(result.errors), result.kept)


def test_error_is_the_relative_rms(dense, tmp_path):
    """‖w − q(w)‖ / ‖w‖ of each weight, the largest first among the worst."""
    result = written(dense, tmp_path / "out")
    weight = load(dense / "model.safetensors")[f"{LAYER}.mlp.down_proj.weight"].double()
    quantized = dequantize_mxfp4_torch(quantize_mxfp4_torch(weight), torch.float64)
    found = {e.module: e.relative_rms for e in result.errors}[f"{LAYER}.mlp.down_proj"]
    assert pytest.approx(float((weight - quantized).norm() / weight.norm()), rel=1e-5) == found
    assert max(e.relative_rms for e in result.errors) == result.worst(2)[0].relative_rms


def test_config_says_how_to_read_it(dense, tmp_path):
    """config.json is the model's own, with a quantization_config; the tokenizer is beside it."""
    written(dense, tmp_path / "out", mode="even")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert ("llama", "advisor_mxfp4", "even", ["model.embed_tokens"]) == (
        config["model_type"],
        *(config["quantization_config"][key] for key in ("quant_method", "scale_mode", "ignore")),
    )
    assert (tmp_path / "out/tokenizer.json").exists()


def test_pieces_make_no_difference(dense, tmp_path, monkeypatch):
    """A tensor that is read some rows at a time gives the same bytes as one that is read whole."""
    written(dense, tmp_path / "whole")
    monkeypatch.setattr(checkpoint, "PIECE", 5 * H)
    written(dense, tmp_path / "parts")
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "parts/model.safetensors").read_bytes()


class Killed(BaseException):
    """What stops a run in the middle."""


def stop_after(count):
    """A `tell` that ends the run with its n-th line."""
    lines = []

    def tell(line):
        lines.append(line)
        if len(lines) == count:
            raise Killed

    return tell


def test_stopped_run_goes_on(sharded, tmp_path):
    """The finished shard stays as it is, the others follow, and the report counts the weights of both runs."""
    out = tmp_path / "out"
    with pytest.raises(Killed):
        written(sharded, out, tell=stop_after(1))
    assert not (out / "config.json").exists()
    first = (out / "model-1.safetensors").stat().st_mtime_ns
    result = written(sharded, out)
    assert (1, 7, first) == (result.resumed, len(result.errors), (out / "model-1.safetensors").stat().st_mtime_ns)
    held = json.loads((out / INDEX).read_text())["weight_map"]
    assert {n: name for name in set(held.values()) for n in load(out / name)} == held


def test_damaged_shard_is_written_again(sharded, tmp_path):
    """A finished shard counts only as long as its digest is right."""
    out = tmp_path / "out"
    written(sharded, out)
    good = (out / "model-2.safetensors").read_bytes()
    (out / "model-2.safetensors").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert (2, good) == (written(sharded, out).resumed, (out / "model-2.safetensors").read_bytes())


def test_failure_leaves_no_part_of_a_file(dense, tmp_path):
    """A weight with a NaN stops the run; nothing that looks like a shard is left."""
    tensors = drawn(DENSE)
    tensors[f"{LAYER}.mlp.up_proj.weight"][3, 5] = torch.nan
    store(dense / "model.safetensors", tensors)
    with pytest.raises(BadFileError, match=r"up_proj.weight holds NaN"):
        written(dense, tmp_path / "out")
    assert [STATE] == [path.name for path in (tmp_path / "out").iterdir()]


def test_one_ignored_part_keeps_the_stack(dense):
    """vLLM has one layer for q, k and v: without q, none of them is quantized."""
    kept = plan(dense, ["q_proj"]).kept
    assert ("model.embed_tokens", *(f"{LAYER}.self_attn.{n}_proj" for n in "kqv")) == kept


def test_rows_that_are_no_blocks_stay(tmp_path):
    """K has to divide by 32."""
    tensors = drawn(DENSE | {f"{LAYER}.mlp.down_proj.weight": (H, 80)})
    assert f"{LAYER}.mlp.down_proj" in plan(folder(tmp_path / "model", tensors), ()).kept


FUSED = {
    f"{LAYER}.mlp.experts.gate_up_proj": (3, 2 * INNER, H),
    f"{LAYER}.mlp.experts.down_proj": (3, H, INNER),
    f"{LAYER}.mlp.gate.weight": (3, H),
}


def test_fused_experts_are_taken_apart(tmp_path):
    """[E, 2 I, H] becomes a gate and an up projection an expert, under the names that every loader knows."""
    source = folder(tmp_path / "model", drawn(ATTENTION | FUSED))
    written(source, tmp_path / "out")
    before, after = load(source / "model.safetensors"), load(tmp_path / "out/model.safetensors")
    stack = before[f"{LAYER}.mlp.experts.gate_up_proj"]
    for name, rows in (("gate_proj", stack[2, :INNER]), ("up_proj", stack[2, INNER:])):
        found = (after[f"{LAYER}.mlp.experts.2.{name}.{kind}"] for kind in ("weight", "weight_scale"))
        assert all(map(torch.equal, quantize_mxfp4_torch(rows), Mxfp4(*found)))


def test_experts_of_another_layout_stay(tmp_path):
    """Transposed stacks (or gpt-oss's, with biases) are copied, and their layer is in `ignore`."""
    turned = {name: (s[0], *s[:0:-1]) if len(s) == 3 else s for name, s in FUSED.items()}
    decided = plan(folder(tmp_path / "model", drawn(ATTENTION | turned)), ())
    assert (f"{LAYER}.mlp.experts", f"{LAYER}.mlp.gate") == decided.kept
    assert 4 == decided.pieces


# What the command says about input that it cannot take: one line, exit code 2.


def spoil_lfs(source):
    (source / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")


def spoil_cut(source):
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def spoil_config(source):
    (source / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8"}}))


SPOILED = {
    "has no safetensors files": lambda source: (source / "model.safetensors").unlink(),
    "Git LFS pointer": spoil_lfs,
    "is cut off": spoil_cut,
    "quantized already (fp8)": spoil_config,
    "has no config.json": lambda source: (source / "config.json").unlink(),
    "is no safetensors file": lambda source: (source / "model.safetensors").write_bytes(b"PK\3\4" * 9),
    "which its index names": lambda source: (source / INDEX).write_text('{"weight_map": {"a": "gone.safetensors"}}'),
}


@pytest.mark.parametrize("says", SPOILED)
def test_bad_input_is_one_line(dense, tmp_path, capsys, says):
    """It names the file and what is wrong with it."""
    SPOILED[says](dense)
    assert 2 == main([str(dense), str(tmp_path / "out")])
    line = capsys.readouterr().err
    assert says in line
    assert 1 == line.count("\n")


def test_folder_of_somebody_else_is_left_alone(dense, tmp_path, capsys):
    """A folder with anything in it that is not ours is refused."""
    (tmp_path / "letter.txt").write_text("dear")
    assert 2 == main([str(dense), str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err


def test_other_options_need_another_folder(dense, tmp_path, capsys):
    """A finished folder is not overwritten by a run that would give something else."""
    assert 0 == main([str(dense), str(tmp_path / "out")])
    assert 2 == main([str(dense), str(tmp_path / "out"), "--scale-mode", "even"])
    assert "other options" in capsys.readouterr().err


def test_too_small_a_disk_is_said_before(dense, tmp_path, capsys, monkeypatch):
    """Nothing is written when it will not fit."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert 2 == main([str(dense), str(tmp_path / "out")])
    assert "0.00 GiB free" in capsys.readouterr().err


def test_dry_run_writes_nothing(dense, tmp_path, capsys):
    """It says sizes as JSON: 26.6 % of the bf16 bytes of what is quantized, the rest as it was."""
    assert 0 == main([str(dense), str(tmp_path / "out"), "--dry-run", "--json"])
    said, weights = json.loads(capsys.readouterr().out), 4 * H * H + 3 * H * INNER
    other = 2 * (H + 100 * H)
    assert (2 * weights + other, weights * 17 // 32 + other) == (said["bytes_before"], said["bytes_after"])
    assert not (tmp_path / "out").exists()


def test_json_reports_the_errors(dense, tmp_path, capsys):
    """One object on stdout, progress on stderr."""
    assert 0 == main([str(dense), str(tmp_path / "out"), "--json"])
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert (7, 5, 0) == (len(said["layers"]), len(said["worst"]), said["resumed"])
    assert "1/1 model.safetensors: 7 weights quantized\n" == printed.err


def test_files_are_what_the_reference_reads(dense, tmp_path):
    """huggingface/safetensors opens ours."""
    safetensors = pytest.importorskip("safetensors.torch", reason="the reference reader")
    written(dense, tmp_path / "out")
    ours, theirs = load(tmp_path / "out/model.safetensors"), safetensors.load_file(tmp_path / "out/model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())

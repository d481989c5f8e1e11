"""Calibrations in the store: kept by folder, shown the newest first, and said to be old when the weights changed."""

import json
from types import SimpleNamespace

import pytest

from vllm_tuner.calibrate.experts import Coverage, Expert
from vllm_tuner.calibrate.proposals import ModuleLoss
from vllm_tuner.calibrate.scales import LayerScales


pytest.importorskip("sqlmodel", reason="sqlmodel is not installed")
runner = pytest.importorskip("typer.testing", reason="typer is not installed").CliRunner()


@pytest.fixture
def model(tmp_path):
    """A folder with weights of a sort."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x" * 10)
    return folder


def found(k=0.5, coverage=None, losses=()):
    """What a calibration found, as far as the store looks at it."""
    return SimpleNamespace(
        prompts=(10, 20), scales=(LayerScales(0, k, 0.25, 2.0),), coverage=coverage, module_losses=losses
    )


def shown(model, place, *more, code=0):
    """What the command prints."""
    from vllm_tuner.calibrate.cli import app

    done = runner.invoke(app, ["list", str(model), "--store", str(place), *more])
    assert code == done.exit_code, done.exception
    return done.stdout


def test_three_kinds_are_kept(model, tmp_path):
    """Scales by tensor, tokens by expert, errors by format and module; the command with the overlay is said."""
    from vllm_tuner.calibrate import kept

    cover = Coverage((Expert(0, 0, 5, 40), Expert(0, 1, 0, 3)), 32, 1, 100)
    losses = (ModuleLoss("model.layers.0.mlp.up_proj", "mxfp4", 0.1, 0.12, 64),)
    kept.save(found(coverage=cover, losses=losses), model, tmp_path / "my out", str(tmp_path / "s.db"))
    rows = json.loads(shown(model, tmp_path / "s.db", "--json"))["calibrations"]
    values = {row["kind"]: row["values"] for row in rows}

    names = [f"model.layers.0.self_attn.{kind}_scale" for kind in "kvq"]
    assert dict(zip(names, (0.5, 0.25, 2.0), strict=True)) == values["kv_scales"]
    assert {"model.layers.0.experts.0": 40.0, "model.layers.0.experts.1": 3.0} == values["experts"]
    assert {"mxfp4:model.layers.0.mlp.up_proj": 0.12} == values["error"]
    text = " ".join(shown(model, tmp_path / "s.db").split())
    assert f"vllm serve '{tmp_path}/my out' --kv-cache-dtype fp8" in text
    assert "1 of 2 experts stayed cold" in text


def test_newest_comes_first_and_old_weights_are_named(model, tmp_path):
    """Two runs, then other weights: the order, and a line that says to calibrate again."""
    from vllm_tuner.calibrate import kept

    for k in (0.5, 0.75):
        kept.save(found(k), model, None, str(tmp_path / "s.db"))
    rows = json.loads(shown(model, tmp_path / "s.db", "--json"))["calibrations"]
    assert [0.75, 0.5] == [row["values"]["model.layers.0.self_attn.k_scale"] for row in rows]
    assert "calibrate again" not in shown(model, tmp_path / "s.db")

    (model / "model.safetensors").write_bytes(b"x" * 11)
    assert 2 == shown(model, tmp_path / "s.db").count("of other weights than are there now: calibrate again")


def test_nothing_kept_is_exit_1(model, tmp_path):
    """The command that would make one is named on stderr."""
    assert "" == shown(model, tmp_path / "s.db", code=1)

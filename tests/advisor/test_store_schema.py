"""One stored database per released schema: each still opens, is brought up to date, and says what it said."""

import sqlite3
from pathlib import Path

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Origin, TrialState
from vllm_advisor.store import form, lookup, schema
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS, Sla, Workload


FOLDER = Path(__file__).resolve().parents[1] / "data" / "store"


def restored(revision, path):
    """The database that a release wrote, from its text."""
    connection = sqlite3.connect(path)
    connection.executescript((FOLDER / f"schema-{revision}.sql").read_text(encoding="utf-8"))
    connection.close()
    return path


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_a_released_schema_still_opens(tmp_path, revision):
    """Upgraded to HEAD, with its profile, trials, lease, event, kernel and calibration as they were."""
    path = restored(revision, tmp_path / "advisor.db")
    with ProfileStore.open(path, now=lambda: 0.0) as store:
        (profile,) = store.profiles()
        assert ("Qwen/Qwen3-8B", "TP2", Origin.MEASURED, (1,)) == (
            profile.model, profile.plan.layout, profile.provenance.origin, profile.provenance.trials,
        )  # fmt: skip
        assert Interval(1900.0, 2000.0, 2100.0) == profile.measurement.figure("output_tok_s")
        assert ["complete", "failed", "infeasible", "waiting"] == sorted(trial.state for trial in store.trials())
        assert "box" == store.holder("box").node
        assert ["started"] == [event.message for event in store.events()]
        assert [("BLOCK_M", 64)] == [kernel.settings[0] for kernel in store.kernels()]
        assert ["kv_scales"] == [found.kind for found in store.calibrations("Qwen/Qwen3-8B")]
        assert "ok" == store.integrity()
        loose = profile.fingerprint.loose
    assert [profile.id] == [found.id for found in lookup.profiles_like([loose], path).profiles]


def test_every_released_schema_has_its_database():
    """A new revision comes with a stored database."""
    assert [f"schema-{revision}.sql" for revision in schema.REVISIONS] == sorted(p.name for p in FOLDER.glob("*.sql"))


def test_states_are_stored_as_their_words():
    """A released word never changes."""
    assert ["waiting", "running", "complete", "infeasible", "failed", "aborted"] == list(TrialState)


PLANS = [
    Plan("org/model"),
    Plan("org/m", "fp8_per_channel", "fp8", 4, 2, 2, 2, True, True, 131_072, 64, 8192, 0.85, 1 << 33, True, 128,
         "FLASHINFER", "marlin", "throughput", 2, True, (("VLLM_ROCM_USE_AITER", "1"),)),
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_comes_back(plan):
    """Every field, through JSON."""
    assert plan == form.plan_from(form.plan_to(plan))


@pytest.mark.parametrize("load", [*PRESETS.values(), Workload(sla=Sla(500.0, 20.0), request_rate=2.5)])
def test_a_workload_comes_back(load):
    """Every preset, a rate and limits."""
    assert load == form.workload_from(form.workload_to(load))


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({}, "checkpoint is missing"),
        ({"checkpoint": "m", "tensor_parallel_size": 0}, "at least 1"),
        ({"checkpoint": "m", "tensor_parallel_size": True}, "whole number"),
        ({"checkpoint": "m", "gpu_memory_utilization": 1.5}, "share of the memory"),
        ({"checkpoint": "m", "enforce_eager": 1}, "neither true nor false"),
        ({"checkpoint": "m", "shell": "rm"}, "does not know"),
        ({"checkpoint": "m" * 5000}, "text of at most"),
        ({"checkpoint": "a\x1b[2J"}, "text of at most"),
        ({"checkpoint": "m", "env": {"HF_TOKEN": "x"}}, "secret"),
        ({"checkpoint": "m", "env": {"A;rm": "x"}}, "no variable's name"),
        ([], "no table"),
    ],
)
def test_a_plan_is_read_without_trust(plain, says):
    """Type, range, and names that we do not know."""
    with pytest.raises(BadInput, match=says):
        form.plan_from(plain)


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"figures": {"output_tok_s": [2.0, 1.0, 3.0]}}, "must rise"),
        ({"figures": {"output_tok_s": [1.0, 2.0]}}, "low, middle, high"),
        ({"figures": {"output_tok_s": [-1.0, 2.0, 3.0]}}, "at least 0"),
        ({"figures": {"output_tok_s": [1.0, float("nan"), 3.0]}}, "want a number"),
        ({"figures": {}, "repeats": 0}, "at least 1"),
        ({"figures": {}, "workload": {"objective": "world peace"}}, "balanced"),
        ({"figures": {}, "workload": {"input_tokens": -5}}, "at least 1"),
        ({"figures": {}, "workload": {"request_rate": "fast"}}, "want a number"),
        ({}, "figures is missing"),
    ],
)
def test_a_measurement_is_read_without_trust(plain, says):
    """Figures rise and are finite and positive; a load is one."""
    with pytest.raises(BadInput, match=says):
        form.measurement_from(plain)

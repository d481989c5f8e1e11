"""What ships: one schema, a source for every figure, and the seed's rows as they are answered elsewhere."""

import pytest

import vllm_profiles
from vllm_advisor.catalog import gpus, models
from vllm_advisor.plan import Plan
from vllm_advisor.profiles import reported_line
from vllm_advisor.rules.seed import SEED_ROWS
from vllm_advisor.store import form


ALL = {row["id"]: row for row in vllm_profiles.load_all()}
REPORTED = [row for row in ALL.values() if row["kind"] == "reported"]
SEED = [row for row in ALL.values() if row["kind"] == "seed"]


def test_the_index_is_that_of_the_files():
    """`index.json` names every public measurement by model and device."""
    assert vllm_profiles.index_of(REPORTED) == vllm_profiles.index()
    assert len(REPORTED) >= 10


@pytest.mark.parametrize("row", REPORTED, ids=lambda row: row["id"])
def test_a_public_measurement_has_its_source(row):
    """An address, a date, a device and a model of the catalog, a plan and a load that are ones."""
    assert row["provenance"]["source"].startswith("https://")
    assert row["provenance"]["date"]
    assert row["machine"]["gpu"] == gpus.find(row["machine"]["gpu"]).name
    assert row["model"] == models.find(row["model"]).name == row["plan"]["checkpoint"]
    plan, load = form.plan_from(row["plan"]), form.workload_from(row["workload"])
    assert isinstance(plan, Plan)
    assert plan.world_size == row["machine"]["devices"]
    assert load.concurrency >= 1
    figures = {name: [value] * 3 for name, value in row["measurement"]["figures"].items()}
    assert form.measurement_from({"figures": figures}).figure("output_tok_s").mid > 0
    assert plan.layout in reported_line(row)


def test_the_seeds_rows_are_those_that_are_answered():
    """Six, word by word what `advisor matrix` and docs/seed.md say, with our verdict for both versions."""
    ours = {row["situation"]: row for row in SEED}
    assert len(SEED_ROWS) == len(SEED)
    for seed in SEED_ROWS:
        row = ours[seed.situation]
        assert (seed.quantization, seed.kv_cache, seed.reason) == (row["weights"], row["kv_cache"], row["says"])
        for version, answer in (("0.24.0", seed.old), ("0.33.0", seed.new)):
            assert answer._asdict() == row["verdict"][version]
        assert "docs/seed.md" in row["provenance"]["source"]


@pytest.mark.parametrize("name", ["", "absent", "../__init__", "/etc/passwd"])
def test_only_what_ships_is_loaded(name):
    """No path leads out of the folder."""
    with pytest.raises(KeyError):
        vllm_profiles.load(name)

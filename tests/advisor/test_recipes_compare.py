"""A recipe beside our plan: every difference has a reason, and what the version no longer takes is named."""

import json
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.cli import recipes
from vllm_advisor.facts import Facts
from vllm_advisor.recipes.compare import OTHER, OURS_ONLY, RECIPE_ONLY, compare
from vllm_advisor.recipes.read import find
from vllm_advisor.recipes.reasons import Reasons
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm.surface import load
from vllm_advisor.workload import PRESETS


DATA = Path(__file__).parents[1] / "data/recipes"
BIG = "Qwen/Qwen3-235B-A22B-Instruct-2507"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def recommended(name, machine, version="0.33.0"):
    """Our answer for a chat load; the model's own checkpoint only."""
    return recommend(Facts(gpus.node(machine), models.find(name), PRESETS["chat"], load(version)))


def compared(name, machine, version="0.33.0"):
    """The recipe against it."""
    answer = recommended(name, machine, version)
    recipe = find(
        DATA, answer.facts.model, answer.facts.node, answer.plans[0].plan.checkpoint if answer.plans else None
    )
    return compare(recipe, answer)


@pytest.fixture(scope="module")
def big():
    """The stale recipe on eight H200s."""
    return compared(BIG, "8xH200")


def test_dead_flags_are_named_with_what_takes_their_place(big):
    """Of the command, of the guide's commands and of its prose, each once."""
    dead = {d.name: d for d in big.dead}
    assert {"--swap-space", "VLLM_USE_V1", "--kv-cache-dtype fp8_e4m3fn", "--rope-scaling"} == set(dead)
    assert dead["--swap-space"].where == "its command and 1 more place"
    assert dead["--rope-scaling"].where == "guide, Longer prompts"
    assert dead["--rope-scaling"].instead.startswith("--hf-overrides")
    assert dead["--kv-cache-dtype fp8_e4m3fn"].instead == "--kv-cache-dtype fp8_e4m3"


def test_a_flag_of_another_program_is_not_dead(big):
    """--random-input-len is of `vllm bench serve`, --disable-log-requests still stands."""
    assert not [d for d in big.dead if d.name in ("--random-input-len", "--disable-log-requests")]


def test_a_dead_value_is_no_difference_as_well(big):
    """It is named once."""
    assert not [d for d in big.differences if d.name == "--kv-cache-dtype"]


def test_every_difference_has_a_reason(big):
    """In each of the three kinds."""
    assert {OTHER, RECIPE_ONLY, OURS_ONLY} == {d.kind for d in big.differences}
    assert all(d.reason for d in big.differences)
    limit = next(d for d in big.differences if d.name == "--max-num-seqs")
    assert (OTHER, "128") == (limit.kind, limit.recipe)
    assert limit.ours is not None
    assert "default here 1,024" in limit.reason


def test_what_both_have_is_the_same(big):
    """A default that the recipe writes out and ours leaves to vLLM is the same too."""
    assert "--tool-call-parser" in big.same
    assert "--gpu-memory-utilization" in compared(LLAMA, "H100").same


def test_an_older_version_has_other_dead_flags():
    """0.24.0 is older than the recipe for this model asks for."""
    assert compared(LLAMA, "H100", "0.24.0").too_old
    assert not compared(LLAMA, "H100").too_old


def test_the_recipe_of_a_relative_says_so():
    """Its checkpoint is another one because the model is."""
    found = compared("Qwen/Qwen3-14B", "2xL40S")
    size = next(d for d in found.differences if d.name == "checkpoint")
    assert size.reason.startswith("the recipe is that of another model")


def test_a_value_that_we_judged_has_its_judgement():
    """Eight ways do not divide 28 heads: the rule that rejected them; a plan that ranks lower: what it trades."""
    answer = recommended("Qwen/Qwen2.5-7B-Instruct", "8xH100")
    reasons = Reasons(answer, answer.facts.vllm)
    assert reasons.instead("--tensor-parallel-size", "8").startswith("rejected (PAR-")
    lower = answer.plans[1].plan
    other = next(p for p in answer.plans[1:] if p.plan.kv_cache_dtype != answer.plans[0].plan.kv_cache_dtype)
    assert lower != answer.plans[0].plan
    assert "of ours has it: " in reasons.instead("--kv-cache-dtype", other.plan.kv_cache_dtype)


def test_no_plan_of_ours_leaves_the_recipe_alone():
    """Nothing fits: the recipe and its dead flags are shown, differences are none."""
    found = compared(BIG, "L40S")
    assert (False, ()) == (found.ours, found.differences)
    assert found.dead


def test_the_section_is_text():
    """A title, the command on one line, then what differs."""
    lines = recipes.section(recommended(BIG, "8xH200"), DATA)
    assert lines[0].startswith(
        f"Recipe of the vLLM project: models/{BIG}.yaml (this model, variant default, single_node_tp)"
    )
    assert f"vllm serve {BIG} --swap-space 16" in lines[1]
    assert any(line.startswith("  note: its authors verified it on h200") for line in lines)
    assert any(line.startswith("  dead: --swap-space") for line in lines)


def test_the_document_is_json(big):
    """The same, as a value that a program reads."""
    document = json.loads(json.dumps(recipes.document(recommended(BIG, "8xH200"), DATA)))
    assert (f"models/{BIG}.yaml", "h200", False) == (document["path"], document["hardware"], document["too_old"])
    assert [d.name for d in big.dead] == [d["name"] for d in document["dead"]]


def test_no_recipe_is_said():
    """A line, and null."""
    answer = recommended("deepseek-ai/DeepSeek-V3", "8xH200")
    assert ["No recipe for deepseek-ai/DeepSeek-V3 among 6"] == recipes.section(answer, DATA)
    assert recipes.document(answer, DATA)["path"] is None

"""The vLLM project's recipes: the nearest is found, and rendered as its own site would; broken files stop nothing."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import BadInput
from vllm_advisor.recipes import files, guide
from vllm_advisor.recipes.hardware import profile
from vllm_advisor.recipes.read import FAMILY, FORMAT, OWN, Found, Missing, find
from vllm_advisor.recipes.tree import Tree


DATA = Path(__file__).parents[1] / "data/recipes"
BIG = "Qwen/Qwen3-235B-A22B-Instruct-2507"


def found(name, machine="8xH200", checkpoint=None, folder=DATA):
    """The recipe for a catalog model on a catalog machine."""
    return find(folder, models.find(name), gpus.node(machine), checkpoint)


def flags(recipe):
    """Its command's flags with their values, as text."""
    return " ".join(recipe.command.argv[3:])


def clone(tmp_path, **written):
    """A copy of the data, with files written over it."""
    folder = tmp_path / "recipes"
    shutil.copytree(DATA, folder)
    for path, text in written.items():
        target = folder / "models" / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def test_a_model_has_its_own_recipe():
    """The path is the model's name; base, strategy, hardware and features are put together, later words winning."""
    recipe = found(BIG)
    assert (OWN, "h200", "verified", "0.10.0") == (
        recipe.nearness, recipe.hardware.id, recipe.verified, recipe.minimum,
    )  # fmt: skip
    assert ("default", "single_node_tp") == (recipe.command.variant, recipe.command.strategy)
    assert flags(recipe) == (
        "--swap-space 16 --max-num-seqs 128 --tensor-parallel-size 8 --kv-cache-dtype fp8_e4m3fn "
        "--enable-auto-tool-choice --tool-call-parser hermes"
    )
    assert (("SAFETENSORS_FAST_GPU", "1"), ("VLLM_USE_V1", "1")) == recipe.command.env


def test_our_checkpoint_chooses_the_variant():
    """The FP8 variant has its own repository, its own limit, and a parallel size for this device."""
    recipe = found(BIG, checkpoint="Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    assert ("fp8", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8") == (recipe.command.variant, recipe.command.argv[2])
    assert "--max-num-seqs 256 --tensor-parallel-size 4" in flags(recipe)


def test_another_device_has_other_overrides():
    """AMD's block instead of Hopper's, and what the authors say of the device."""
    recipe = found(BIG, "8xMI300X")
    assert ("mi300x", "unsupported") == (recipe.hardware.id, recipe.verified)
    assert "--gpu-memory-utilization 0.8" in flags(recipe)
    assert "--kv-cache-dtype" not in flags(recipe)


def test_weights_that_fit_one_device_take_one():
    """No declared size: one device where they fit, else the whole node."""
    assert "--tensor-parallel-size 1" in flags(found("meta-llama/Llama-3.1-8B-Instruct", "8xH100"))
    assert "--tensor-parallel-size 8" in flags(found("openai/gpt-oss-120b", "8xH100"))


def test_a_strategy_s_own_hardware_replaces_the_recipe_s():
    """And of a feature with modes one is taken: the default, in the form for this device."""
    recipe = found("openai/gpt-oss-120b", "8xH100")
    assert "--max-num-seqs 64" in flags(recipe)
    assert "--async-scheduling" not in flags(recipe)
    assert "--speculative-config" not in flags(recipe)
    assert "eagle3" in flags(found("openai/gpt-oss-120b", "8xMI300X"))


def test_a_sibling_finds_the_recipe_of_its_base():
    """A checkpoint in another format, by base model and by name."""
    sibling = replace(models.find(BIG), name="Somebody/Qwen3-235B-A22B-Instruct-2507-AWQ", base_model="", siblings=())
    recipe = find(DATA, sibling, gpus.node("8xH200"))
    assert (FORMAT, f"models/{BIG}.yaml") == (recipe.nearness, recipe.path)


def test_a_variant_s_repository_is_the_model_s_own_recipe():
    """A repository that stands only inside another model's file."""
    recipe = found(BIG, checkpoint=None)
    named = replace(models.find(BIG), name="Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    inner = find(DATA, named, gpus.node("8xH200"))
    assert (OWN, recipe.path, "fp8") == (inner.nearness, inner.path, inner.command.variant)


def test_a_relative_stands_in_and_a_broken_file_is_counted():
    """Qwen3-14B's own file is broken: the nearest of the family, by size, is shown as what it is."""
    recipe = found("Qwen/Qwen3-14B", "H100")
    assert (FAMILY, "models/Qwen/Qwen3-32B.yaml") == (recipe.nearness, recipe.path)
    assert len(recipe.skipped) == 1
    assert recipe.skipped[0].startswith("models/Qwen/Qwen3-14B.yaml: ")
    assert "\n" not in recipe.skipped[0]
    assert "--max-num-batched-tokens 8192 --kv-cache-dtype auto" in flags(recipe)


def test_the_older_form_is_read_where_there_is_no_other(tmp_path):
    """A configuration file of a family and a generation."""
    folder = clone(tmp_path)
    (folder / "models/openai/gpt-oss-120b.yaml").unlink()
    recipe = found("openai/gpt-oss-120b", "8xB200", folder=folder)
    assert (FAMILY, "OpenAI/GPT-OSS_Blackwell.yaml") == (recipe.nearness, recipe.path)
    assert flags(recipe) == "--kv-cache-dtype fp8 --async-scheduling --max-num-batched-tokens 8192"
    assert isinstance(found("openai/gpt-oss-120b", "8xH100", folder=folder), Missing)


def test_no_recipe_is_an_answer():
    """How many were looked at."""
    missing = found("deepseek-ai/DeepSeek-V3")
    assert isinstance(missing, Missing)
    assert missing.looked_at == 6


def test_what_is_no_clone_is_refused(tmp_path):
    """A folder that is not there, one without recipes: both say how to get one."""
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput) as caught:
            found(BIG, folder=folder)
        assert "git clone" in caught.value.hint


@pytest.mark.parametrize(
    "body", ["", "[]", "7", "model: 3", "model: {model_id: [a]}", "a: &a [*a]", "x: " + "[" * 9000, "\x00", "{" * 500]
)
def test_a_file_of_any_content_stops_nothing(tmp_path, body):
    """Empty, a list, a number, of another shape, endless: the next nearest recipe is found."""
    folder = clone(
        tmp_path,
        **{
            f"{BIG.replace('/', '__')}.yaml": body,
            "Qwen__Qwen3-235B-A22B-FP8.yaml": "model: {model_id: Qwen/Qwen3-235B-A22B-FP8}",
        },
    )
    assert isinstance(found(BIG, folder=folder), Found)


def test_shapes_that_changed_leave_words_out(tmp_path):
    """Lists where mappings were, text where lists were: what can be read is read."""
    body = f"""
    model: {{model_id: {BIG}, base_args: [--a, {{b: 1}}, null, true], base_env: [1]}}
    variants: [1]
    features: {{x: 3, y: {{args: "--c d"}}}}
    hardware_overrides: text
    strategy_overrides: {{single_node_tp: []}}
    compatible_strategies: {{}}
    guide: 5
    meta: {{hardware: []}}
    """
    recipe = found(BIG, folder=clone(tmp_path, **{f"{BIG.replace('/', '__')}.yaml": body}))
    assert flags(recipe) == "--a true --tensor-parallel-size 8 --c d"


def test_nothing_outside_of_the_folder_is_read(tmp_path):
    """A link that leads out is skipped, and said."""
    folder = clone(tmp_path)
    outside = tmp_path / "secret.yaml"
    outside.write_text(f"model: {{model_id: {BIG}}}")
    (folder / f"models/{BIG}.yaml").unlink()
    (folder / f"models/{BIG}.yaml").symlink_to(outside)
    recipe = found(BIG, folder=folder)
    assert any("outside" in line for line in recipe.skipped)


def test_a_name_never_becomes_a_path(tmp_path):
    """A model called `../../secret` finds no file of that name."""
    (tmp_path / "secret.yaml").write_text("model: {model_id: x}")
    model = replace(models.find("deepseek-ai/DeepSeek-V3"), name="../../secret", base_model="", siblings=())
    assert isinstance(find(clone(tmp_path), model, gpus.node("H100")), Missing)


def test_a_huge_file_is_skipped(tmp_path):
    """Two megabytes are no recipe."""
    folder = clone(tmp_path, **{f"{BIG.replace('/', '__')}.yaml": "#" * (2 << 20)})
    _, skipped = files.sources(folder)
    assert [line for line in skipped if "larger" in line]


@pytest.mark.parametrize(
    ("machine", "name"),
    [("8xH100", "h100"), ("4xRTX PRO 6000", "rtx_pro_6000_4x"), ("RTX PRO 6000", "rtx_pro_6000"), ("L40S", "")],
)
def test_a_machine_has_a_profile_by_its_words(machine, name):
    """All words of the profile stand in the device's name; of several, the one for so many devices."""
    taxonomy = files.beside(DATA, "taxonomy.yaml")
    assert name == profile(gpus.node(machine), taxonomy).id


def test_without_a_taxonomy_the_id_is_guessed():
    """The word of the device's name that looks like a type."""
    assert ("h200", "hopper") == profile(gpus.node("8xH200"), Tree())[:2]


def test_the_guide_s_commands_are_read():
    """Shell blocks only, with the heading above; a block that is no shell text is passed over."""
    said = found(BIG).guide
    assert ["Eight cards of the older kind"] == [each.heading for each in said]
    assert "--disable-log-requests" in said[0].invocation.argv
    assert (("VLLM_USE_V1", "1"),) == said[0].invocation.env


def test_flags_of_the_prose_are_found():
    """Between backticks, outside of the blocks."""
    assert (("--rope-scaling", "Longer prompts"), ("--random-input-len", "Longer prompts")) == found(BIG).mentioned


@given(st.text())
def test_no_guide_raises(text):
    """Whatever the prose is."""
    guide.commands(f"```bash\n{text}\n```\n{text}")
    guide.flags(text)

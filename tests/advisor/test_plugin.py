"""Our vLLM plugin in the product: proposed only where it was allowed, counted in memory, named in a check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from vllm_advisor.candidates import Restrictions, candidates
from vllm_advisor.catalog import gpus, models
from vllm_advisor.cli.app import app
from vllm_advisor.errors import BadInput, UsageError
from vllm_advisor.facts import Case, Facts
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.weights import Sharding, per_stage, sharding
from vllm_advisor.model.config import read
from vllm_advisor.model.spec import ModelSpec, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.recommend import recommend
from vllm_advisor.rules.engine import judge as judge_plan
from vllm_advisor.rules.kernels import kernels
from vllm_advisor.rules.matrix import matrix
from vllm_advisor.testing import TINY_LLAMA, gpu
from vllm_advisor.throughput.traits import Kernel, kernel
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.command import build, quantization_name
from vllm_advisor.vllm.surface import load, versions
from vllm_advisor.workload import Workload


NAME = "advisor_mxfp4"
V33 = load("0.33.0")
ALLOWED = Restrictions(allow_plugin=True)
DENSE, EXPERTS, GPT_OSS = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-120b"
PACKED = TINY_LLAMA | {
    "quantization_config": {
        "quant_method": NAME,
        "format": "mxfp4-packed",
        "group_size": 32,
        "ignore": ["lm_head", "model.embed_tokens"],
    }
}
PLAIN = ModelSpec(
    "m", "LlamaForCausalLM", "llama", "bfloat16", 4096, 1, 1000, 4096, 32, 8, (), (), intermediate_size=12288
)  # fmt: skip


def facts(name=DENSE, machine="H100", version="0.33.0"):
    """A model of the catalog on a machine by name."""
    return Facts(gpus.node(machine), models.find(name), Workload(), load(version))


def case(name=DENSE, machine="H100", version="0.33.0", model=None, **plan):
    """A plan by the plugin, with its memory."""
    asked = facts(name, machine, version)
    asked = asked._replace(model=model or asked.model)
    wanted = Plan(**({"checkpoint": asked.model.name, "quantization": NAME, "max_model_len": 4096} | plan))
    return Case(asked, wanted, budget(asked.model, wanted, asked.node, asked.vllm))


def quantizations(asked, restrictions=ALLOWED):
    """Every online quantization that is judged."""
    return {plan.quantization for plan, _ in candidates(asked, (asked.model,), restrictions)}


def said(asked, rule):
    """The message of one rule, "" where it is silent."""
    return next((f.message for f in judge_plan(asked) if f.rule == rule), "")


@pytest.mark.parametrize("name", [DENSE, EXPERTS, GPT_OSS])
def test_it_is_proposed_only_where_it_is_allowed(name):
    """Nobody gets a command that their server does not understand without having asked for it."""
    assert NAME in quantizations(facts(name))
    assert NAME not in quantizations(facts(name), Restrictions())


@pytest.mark.parametrize("machine", ["H100", "MI300X", "cpu"])
def test_no_plan_of_a_whole_answer_has_it_without_the_flag(machine):
    """Neither among the plans nor among the rejected ones."""
    found = recommend(facts(EXPERTS, machine), (), Restrictions(), 50)
    assert NAME not in {p.plan.quantization for p in (*found.plans, *found.rejected)}


def test_naming_it_without_the_flag_says_what_to_do():
    """`--quantization advisor_mxfp4` alone is a mistake that a hint mends."""
    with pytest.raises(UsageError, match="our plugin") as error:
        quantizations(facts(), Restrictions(quantization=NAME))
    assert "--allow-plugin" in error.value.hint
    assert {NAME} == quantizations(facts(), Restrictions(quantization=NAME, allow_plugin=True))


@pytest.mark.parametrize(
    ("name", "machine", "version"),
    [
        (DENSE, "H100", "0.31.0"),  # another release
        (DENSE, "1xMI250X", "0.33.0"),  # gfx90a
        (DENSE, "T4", "0.33.0"),  # sm75
        ("Qwen/Qwen3-32B-FP8", "H100", "0.33.0"),  # another format
    ],
)
def test_it_is_no_candidate_where_its_gates_do_not_hold(name, machine, version):
    """Allowed, and still nothing that could be started."""
    assert NAME not in quantizations(facts(name, machine, version))


@pytest.mark.parametrize(
    ("reason", "plan", "model"),
    [
        ("EPLB", {"enable_eplb": True, "enable_expert_parallel": True, "data_parallel_size": 2}, {}),
        ("float32", {}, {"dtype": "float32"}),
        ("gelu_tanh", {}, {"activation": "gelu_tanh"}),
        ("an expert is 24 on a rank", {"tensor_parallel_size": 32}, {}),
    ],
)
def test_a_plan_that_it_cannot_serve_is_vetoed_with_the_reason(reason, plan, model):
    """Each gate of the plugin by itself, on a model that it serves otherwise."""
    spec = models.find(EXPERTS)
    activation = model.pop("activation", spec.moe.activation)
    spec = replace(spec, moe=replace(spec.moe, activation=activation), **model)

    assert "" == said(case(EXPERTS), "QNT-29")
    assert reason in said(case(EXPERTS, model=spec, **plan), "QNT-29")


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("H100", "advisor_mxfp4 (folded FP8), multiplies in 8 bits"),
        ("B200", "advisor_mxfp4 (folded FP8), multiplies in 8 bits"),
        ("MI300X", "advisor_mxfp4 (folded FP8), multiplies in 8 bits"),
        ("A100", "advisor_mxfp4 (W4A16), multiplies in 16 bits"),
        ("cpu", "advisor_mxfp4 (W4A16), multiplies in 16 bits"),
    ],
)
def test_kernels_name_it_and_what_it_multiplies_in(machine, expected):
    """FP8 where the device has the unit, 16 bits elsewhere."""
    shown = dict(kernels(case(EXPERTS, machine)))
    assert (expected, expected) == (shown["linear layers"], shown["experts"])


@pytest.mark.parametrize(
    ("machine", "expected"), [("H100", Kernel(1979e12, "eight")), ("A100 80GB SXM", Kernel(312e12, "weight_only"))]
)
def test_speed_is_that_of_the_unit_it_multiplies_in(machine, expected):
    """The datasheets' dense FP8 rate of an H100 SXM, the BF16 rate of an A100."""
    spec, plan = models.find(DENSE), Plan(DENSE, quantization=NAME)
    assert expected == kernel(spec, plan, gpu(machine), V33, moe=False)


def test_gpt_oss_keeps_its_linear_layers():
    """Its checkpoint holds MXFP4 experts alone, and they are taken over as they are."""
    shown = dict(kernels(case(GPT_OSS)))
    assert "Unquantized, multiplies in 16 bits" == shown["linear layers"]
    assert "advisor_mxfp4 (folded FP8), multiplies in 8 bits" == shown["experts"]


def test_the_plan_says_whose_it_is_and_what_vllm_would_run_itself():
    """With the command to install it, vLLM's kernel for the same format, and the best plan without it."""
    found = recommend(facts(), (), Restrictions(quantization=NAME, allow_plugin=True), 1).plans[0]
    finding = next(f for f in found.findings if f.rule == "QNT-30")

    assert "our plugin and no part of vLLM" in finding.message
    assert "vLLM's own for MXFP4 on sm90 is HummingMxFp4, which multiplies in 16 bits" in finding.message
    assert "the best plan without it: Qwen/Qwen3-32B, " in finding.message
    assert "pip install vllm-advisor in the server's environment" == finding.hint


def test_the_command_has_the_flag_and_a_remark():
    """What has to be installed stands beside the command, too."""
    made = recommend(facts(), (), Restrictions(quantization=NAME, allow_plugin=True), 1).plans[0].command
    assert ("--quantization", NAME) == made.argv[made.argv.index("--quantization") :][:2]
    assert ("", plugin.REMARK) in made.notes
    assert plugin.INSTALL in plugin.REMARK


@pytest.mark.parametrize("version", versions())
def test_a_command_of_another_release_does_not_know_the_name(version):
    """The plugin registers itself with 0.32 and 0.33 only."""
    surface = load(version)
    if version.startswith(("0.32.", "0.33.")):
        assert NAME == quantization_name(NAME, surface)
    else:
        with pytest.raises(BadInput, match=NAME):
            quantization_name(NAME, surface)


def test_weights_take_four_and_a_quarter_bits_and_an_exponent_a_row():
    """Down has rows of 12,288, gate and up of 4,096: 3 × 4,096 × 12,288 elements in 2 × 12,288 + 4,096 rows."""
    mlp = WeightGroup("mlp", 3 * 4096 * 12288, 6 * 4096 * 12288, "column", (0,), quantizable=True)
    spec = replace(PLAIN, weights=(mlp,))
    plan = Plan("m", quantization=NAME)
    bytes_on = {
        name: per_stage(Identity(spec), sharding(spec, plan, gpu(name), V33))[0] for name in ("H100", "A100 80GB SXM")
    }

    assert 3 * 4096 * 12288 * 17 // 32 + (2 * 12288 + 4096) * 4 == bytes_on["H100"]
    assert 3 * 4096 * 12288 * 17 // 32 == bytes_on["A100 80GB SXM"]


@pytest.mark.parametrize(
    ("role", "quantizable", "model"),
    [
        ("vision", True, {"architecture": "Qwen3VLForConditionalGeneration"}),
        ("embedding", False, {}),
        ("mlp", True, {"intermediate_size": 12288 + 16}),  # no whole number of blocks of 32
    ],
)
def test_what_stays_in_sixteen_bits_is_counted_so(role, quantizable, model):
    """Towers, tables, and layers whose input does not split into blocks."""
    group = WeightGroup(role, 1 << 20, 1 << 21, "replicated", (0,), quantizable=quantizable)
    spec = replace(PLAIN, weights=(group,), **model)
    assert (1 << 21,) == per_stage(Identity(spec), Sharding(1, online=NAME, row_bytes=4))


def test_gpt_oss_weighs_what_its_files_do_without_padding():
    """VLLM's kernels pad its experts to tiles, the plugin does not; its attention stays in 16 bits."""
    spec = models.find(GPT_OSS)
    ours = budget(spec, Plan(GPT_OSS, quantization=NAME), gpus.node("A100 80GB SXM"), V33).weights
    theirs = budget(spec, Plan(GPT_OSS), gpus.node("A100 80GB SXM"), V33).weights

    assert 60.77 == pytest.approx(spec.exact_weight_bytes / 2**30, abs=0.01)
    assert 60.8 == pytest.approx(ours / 2**30, abs=0.1)
    assert theirs > ours * 1.05


def test_a_packed_checkpoint_of_ours_is_read():
    """`advisor-quantize` writes the method, its group, and what stays in 16 bits."""
    spec = read(PACKED)
    stored = {g.role: g.bits for g in spec.weights}

    assert (NAME, "mxfp4", 4, 32) == (
        spec.quantization.method,
        spec.quantization.scheme,
        spec.quantization.weight_bits,
        spec.quantization.group_size,
    )
    assert (4, 16, 16) == (stored["mlp"], stored["embedding"], stored["lm_head"])


def test_a_packed_checkpoint_s_plan_has_no_flag():
    """Its config.json names the method, and vLLM reads it; the plugin is needed all the same."""
    asked = facts()._replace(model=replace(read(PACKED), name="./packed"))
    best = recommend(asked, (), Restrictions(), 1).plans[0]
    again = build(best.plan, best.model, asked.node, V33, asked.workload)

    assert "--quantization" not in best.command.argv
    assert best.command.argv == again.argv
    assert "vLLM itself does not read such a checkpoint" in next(f.message for f in best.findings if f.rule == "QNT-30")
    assert "advisor_mxfp4 (folded FP8), multiplies in 8 bits" == dict(best.kernels)["linear layers"]


def test_a_packed_checkpoint_needs_a_release_and_a_split_that_the_plugin_takes():
    """TINY_LLAMA's heads are 64 wide together: eight ranks get 8 each, no whole block; a tower would not be packed."""
    spec = replace(read(PACKED), name="./packed")
    assert "" == said(case(model=spec, quantization=None), "QNT-29")
    assert "" == said(case(model=replace(spec, tower_widths=(4304 + 8,)), quantization=None), "QNT-29")
    assert "attention's output is 8 on a rank" in said(
        case(model=spec, quantization=None, tensor_parallel_size=8), "QNT-29"
    )
    assert "supports vLLM 0.32" in said(case(model=spec, quantization=None, version="0.31.0"), "QNT-29")


@pytest.mark.parametrize(
    ("machine", "kernel"), [("H100", "advisor_mxfp4 (folded FP8)"), ("A100 80GB SXM", "advisor_mxfp4 (W4A16)")]
)
def test_the_matrix_has_rows_of_the_plugin_where_it_is_allowed(machine, kernel):
    """Marked as ours, with vLLM's own kernel beside."""
    plain, more = (matrix(gpu(machine), V33, allow_plugin=on) for on in (False, True))
    ours = more[len(plain) :]

    assert plain == more[: len(plain)]
    assert ["our plugin, dense", "our plugin, experts"] == [row.situation for row in ours]
    assert all(kernel in row.why and "vLLM's own for MXFP4" in row.why for row in ours)
    assert not any(NAME in row.quantization for row in plain)


def test_the_matrix_says_why_the_plugin_is_not_there():
    """Another release than those it supports."""
    assert "supports vLLM 0.32 and 0.33" in matrix(gpu("H100"), load("0.31.0"), allow_plugin=True)[-1].why


@pytest.mark.parametrize("flag", [True, False])
def test_the_flag_of_the_command_line_reaches_the_plans(flag):
    """`advisor recommend --allow-plugin`, and without it not a word of the plugin."""
    words = ["recommend", DENSE, "--gpu", "H100", "--json", "--top", "50", *["--allow-plugin"] * flag]
    assert flag is (NAME in CliRunner().invoke(app, words).stdout)


def test_the_product_and_the_plugin_agree():
    """The advisor imports nothing of the kernels, so that their common facts are held here."""
    from vllm_mx_kernels import checkpoint_rules, formats, targets, vllm_plugin

    surfaces = [load(version) for version in versions()]
    assert (checkpoint_rules.NAME, formats.BLOCK) == (plugin.NAME, plugin.BLOCK)
    assert targets.NATIVE_FP8 == {name for name in targets.TARGETS if plugin.uses_fp8(name)}
    assert [vllm_plugin.supports(s.version) for s in surfaces] == [plugin.has_release(s) for s in surfaces]

"""Our forward pass, scales, a simulated cache, expert coverage, losses: on small random models with planted faults."""

import json
import math
import os
from pathlib import Path

import pytest

from vllm_advisor.errors import BadInput, UnsupportedModel
from vllm_advisor.workload import Sensitivity
from vllm_tuner.quality import mean_kl


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture(autouse=True)
def torch():
    """Everything here needs it; the main environment has none."""
    found = pytest.importorskip("torch", reason="torch is not installed")
    found.set_num_threads(1)
    return found


@pytest.fixture
def make(tmp_path):
    """A model folder: which config, what is planted."""
    from vllm_tuner.calibrate import testing

    def build(kind, change=lambda weights: weights, name="model", **config):
        raw = (testing.MOE if kind == "moe" else testing.LLAMA) | config
        return testing.write_model(tmp_path / name, raw, change(testing.tensors(raw)))

    return build


@pytest.fixture
def ids():
    """Prompts of 3, 40 and 100 random tokens."""
    from vllm_tuner.calibrate.testing import prompts

    return [prompts(1, length, 96, seed=length)[0] for length in (3, 40, 100)]


def outputs(folder, ids, *hooks):
    """Logits a variant and prompt."""
    from vllm_tuner.calibrate.config import read_config
    from vllm_tuner.calibrate.forward import Hooks, logits, run
    from vllm_tuner.calibrate.weights import Weights

    config, weights = read_config(folder), Weights(folder)
    return [logits(weights, config, hidden) for hidden in run(weights, config, ids, hooks or [Hooks()])]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("llama", {}),
        ("moe", {}),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("llama", {"rope_scaling": LLAMA3}),
        ("llama", {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16}),
        ("moe", {"norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_forward_is_that_of_transformers(torch, make, ids, kind, config):
    """Logits agree with transformers' own implementation to float32's rounding."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = make(kind, **config)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    (ours,) = outputs(folder, ids)

    for prompt, logits in zip(ids, ours, strict=True):
        with torch.no_grad():
            assert 1e-4 > float((theirs(torch.tensor([prompt])).logits[0] - logits).abs().max())


def test_prompts_do_not_see_each_other(torch, make, ids):
    """A prompt's logits are the same alone and among others."""
    folder = make("moe")

    assert torch.allclose(outputs(folder, ids)[0][1], outputs(folder, ids[1:2])[0][0], atol=1e-4)


def test_later_tokens_change_nothing_before(torch, make, ids):
    """Attention is causal: the logits of the first ten tokens don't depend on the rest."""
    folder = make("llama")

    assert torch.allclose(outputs(folder, [ids[2]])[0][0][:10], outputs(folder, [ids[2][:10]])[0][0], atol=1e-4)


def test_window_forgets(torch, make, ids):
    """With one layer and a window of 4, the last logits don't depend on what is five tokens back."""
    folder = make("llama", num_hidden_layers=1, model_type="mistral", sliding_window=4)
    prompt = ids[1]
    changed = [(prompt[0] + 1) % 96, *prompt[1:]]
    before, after = (outputs(folder, [p])[0][0] for p in (prompt, changed))

    assert torch.equal(before[4:], after[4:])
    assert not torch.allclose(before[3], after[3])


def test_scales_are_amax_over_448(make, ids):
    """Of keys after the rotation and of values, over all prompts; the largest magnitude lands on the largest code."""
    from vllm_tuner.calibrate.forward import Hooks
    from vllm_tuner.calibrate.observe import KvObserver
    from vllm_tuner.calibrate.scales import scales_of

    class Largest(Hooks):
        seen = {}  # noqa: RUF012

        def cached(self, layer, q, k, v):
            sizes = [float(x.abs().max()) for x in (k, v, q)]
            self.seen[layer] = [max(pair) for pair in zip(self.seen.get(layer, sizes), sizes, strict=True)]
            return k, v

    observer = KvObserver()
    folder = make("llama")
    outputs(folder, ids, observer)
    outputs(folder, ids, Largest())
    scales = [scales_of(stats) for stats in observer]

    assert [0, 1, 2] == [s.layer for s in scales]
    assert [pytest.approx([x / 448 for x in Largest.seen[n]]) for n in range(3)] == [[s.k, s.v, s.q] for s in scales]


def test_percentiles_are_close(torch):
    """Percentiles of 200,000 normal values are those of torch within the histogram's 4.5 %, in two batches too."""
    from vllm_tuner.calibrate.observe import Magnitudes
    from vllm_tuner.calibrate.scales import PERCENTILES

    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    seen = Magnitudes()
    for half in x.chunk(2):
        seen.add(half)
    exact = [float(x.abs().quantile(p / 100)) for p in PERCENTILES]

    assert pytest.approx(exact, rel=0.045) == list(seen.spread().percentiles)
    assert float(x.abs().max()) == pytest.approx(seen.spread().amax)


def test_zeros_and_nan_have_no_scale(torch):
    """A layer of zeros gets 1; NaN and infinity are refused with the layer's number."""
    from vllm_tuner.calibrate.observe import KvObserver
    from vllm_tuner.calibrate.scales import scales_of

    observer = KvObserver()
    zeros = torch.zeros(1, 2, 4)
    observer.cached(0, zeros, zeros, zeros)

    assert (0, 1.0, 1.0, 1.0) == scales_of(observer.layer(0))
    with pytest.raises(ValueError, match="layer 7: k holds NaN or infinity"):
        observer.cached(7, zeros, zeros * math.nan, zeros)


def test_scale_is_doubled_only_once(torch):
    """The same scale serves gfx94x: doubled once, by vLLM, nothing saturates and nothing is wasted.

    Not doubled, keys beyond 240 × scale are cut; doubled twice, half of the range would lie idle.
    """
    from vllm_tuner.calibrate.scales import scale_of
    from vllm_tuner.calibrate.simulate import through_cache

    x = torch.linspace(-37, 37, 4097)
    scale = scale_of(37.0)
    fn, once, never = (
        through_cache(x, s, fmt) for s, fmt in ((scale, "E4M3FN"), (2 * scale, "E4M3FNUZ"), (scale, "E4M3FNUZ"))
    )

    assert pytest.approx(37 / 448) == scale
    assert torch.allclose(fn, once, atol=37 * 2**-9)
    assert pytest.approx(37, rel=1e-6) == float(once.max()) == float(fn.max())
    assert pytest.approx(37 * 240 / 448) == float(never.max())


def cache_kl(folder, ids):
    """Mean KL of a simulated cache: with scale 1, and calibrated."""
    from vllm_tuner.calibrate.run import Settings, calibrate

    found = calibrate(folder, ids, Settings(compared_tokens=800, formats=(), expert_rounds=0), lambda _: None)
    return mean_kl(found.plain), mean_kl(found.scaled)


def test_calibrated_scales_save_a_model_with_large_keys(make, ids):
    """Keys 100 times as large saturate at 448 without scales; with them the loss is that of the plain model.

    On the plain model calibrated scales are no worse than 1.
    """
    from vllm_tuner.calibrate.testing import with_large_keys

    plain = cache_kl(make("llama"), ids)
    large = cache_kl(make("llama", lambda w: with_large_keys(w, 100.0), "large"), ids)

    assert large[0] > 10 * large[1]
    assert pytest.approx(plain[1], rel=0.3) == large[1]
    assert plain[1] <= 1.1 * plain[0]


def test_skip_layers_are_those_that_suffer():
    """Only a layer whose attention suffers several times as much as the others' is proposed."""
    from vllm_tuner.calibrate.proposals import skip_layers

    assert (3,) == skip_layers([(n, 0.3 if n == 3 else 0.02) for n in range(8)])
    assert () == skip_layers([(n, 0.009 if n == 3 else 0.001) for n in range(8)])
    assert () == skip_layers([])
    assert 2 == len(skip_layers([(n, 0.02 if n < 5 else 0.5 + n) for n in range(8)]))


def coverage(folder, ids, **settings):
    from vllm_tuner.calibrate.run import Settings, calibrate

    quiet = Settings(compared_tokens=16, formats=(), **settings)
    return calibrate(folder, ids, quiet, lambda _: None).coverage


def test_aimed_prompts_reach_every_reachable_expert(make):
    """Three tokens of text leave experts cold; aimed prompts reach all, and the planted dead expert is named."""
    from vllm_tuner.calibrate.testing import with_dead_expert

    folder = make("moe", lambda w: with_dead_expert(w, layer=1, expert=5))
    few = [[1, 2, 3]] * 2
    before = coverage(folder, few, expert_rounds=0)
    after = coverage(folder, few, expert_rounds=20)

    assert len(before.unreached()) > 3
    assert [(1, 5)] == [(e.layer, e.expert) for e in after.unreached()]
    assert [(1, 5, 0)] == [(e.layer, e.expert, e.tokens) for e in after.cold()]
    assert all(e.tokens >= 32 for e in after.experts if (e.layer, e.expert) != (1, 5))
    assert all(e.tokens >= e.text_tokens for e in after.experts)


def test_prompts_are_aimed_and_not_only_drawn(make):
    """An expert that one token of 4096 reaches, once in the text, sees its 32 tokens within two rounds.

    Tokens drawn at random would meet that token less than once in the two.
    """
    from vllm_tuner.calibrate.testing import with_dead_expert

    folder = make("moe", lambda w: with_dead_expert(w, layer=1, expert=5, but_for=4000), vocab_size=4096)
    text = [[n, n + 1, n + 2, 4000 if n == 30 else n + 3] for n in range(10, 60, 10)]
    found = {(e.layer, e.expert): e for e in coverage(folder, text, expert_rounds=2).experts}

    assert 1 == found[1, 5].text_tokens
    assert found[1, 5].tokens >= 32


def test_coverage_keeps_to_its_budget(make, ids):
    """With a budget of fewer tokens than a round, no aimed prompt is run."""
    found = coverage(make("moe"), [[1, 2, 3]], expert_budget=100)

    assert (0, 0) == (found.rounds, found.spent)
    assert coverage(make("llama", name="dense"), ids) is None


def test_every_token_is_counted(make, ids):
    """Each layer routes each token of the text to two experts."""
    found = coverage(make("moe"), ids, expert_rounds=0)

    for layer in (0, 1):
        assert 2 * sum(map(len, ids)) == sum(e.tokens for e in found.experts if e.layer == layer)


def interrupted(folder, ids, line, error=KeyboardInterrupt):
    """A calibration that is stopped when it says that line."""
    from vllm_tuner.calibrate.run import Settings, calibrate

    def tell(said):
        if said.startswith(line):
            raise error

    return calibrate(folder, ids, Settings(compared_tokens=64), tell)


def test_ctrl_c_keeps_what_was_found(make, ids):
    """Stopped in a pass: what earlier passes found stands, what that one had measured stands too, and it says so."""
    folder = make("moe")
    in_cache = interrupted(folder, ids, "cache: layer 2 of 2")
    in_losses = interrupted(folder, ids, "quantization: layer 2 of 2")

    assert ("interrupted", 2, ()) == (in_cache.stopped, len(in_cache.scales), in_cache.plain)
    assert sum(map(len, ids)) * 2 * 2 == sum(e.tokens for e in in_cache.coverage.experts)
    assert in_losses.plain
    assert {0, 1} == {loss.layer for loss in in_losses.layer_losses}
    assert in_losses.module_losses


def test_coverage_keeps_its_rounds(make):
    """Stopped between two rounds of aimed prompts: the tokens of the first are counted."""
    found = interrupted(make("moe"), [[1, 2, 3]], "coverage round 1").coverage

    assert (1, True) == (found.rounds, found.spent > 0)
    assert sum(e.tokens for e in found.experts) > sum(e.text_tokens for e in found.experts) == 3 * 2 * 2


def test_ctrl_c_before_the_scales_is_ctrl_c(make, ids):
    """Nothing to keep: the interrupt goes on."""
    with pytest.raises(KeyboardInterrupt):
        interrupted(make("llama"), ids, "text: layer 3 of 3")


def test_time_left_is_said_and_kept():
    """Half of the layers in 10 s leave 10 s of the pass; the limit raises once it has come."""
    from types import SimpleNamespace

    from vllm_tuner.calibrate.run import Clock
    from vllm_tuner.trial import BudgetSpent

    said, now = [], [0.0]
    clock = Clock(said.append, layers=4, seconds=15.0, now=lambda: now[0])
    each = clock.layers_of("text")
    now[0] = 10.0
    each(SimpleNamespace(index=1), [], [])
    now[0] = 15.0
    with pytest.raises(BudgetSpent):
        each(SimpleNamespace(index=2), [], [])

    assert [
        "text: layer 2 of 4, about 10 s left of this pass",
        "text: layer 3 of 4, about 5 s left of this pass",
    ] == said


def losses(folder, ids, fmts=("mxfp4", "fp8")):
    from vllm_tuner.calibrate.run import Settings, calibrate

    return calibrate(folder, ids, Settings(formats=fmts, expert_rounds=0), lambda _: None)


def test_four_bits_cost_more_than_eight(make, ids):
    """Every module and layer loses several times as much in MXFP4 as in FP8; both are in the known range."""
    found = losses(make("moe"), ids)
    errors = {(m.module, m.fmt): m for m in found.module_losses}
    modules = {m.module for m in found.module_losses}

    assert {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.experts.3.down_proj"} <= modules
    assert not any("gate.weight" in m or m.endswith("mlp.gate") for m in modules)
    assert all(errors[m, "mxfp4"].output_error > 2 * errors[m, "fp8"].output_error > 0 for m in modules)
    assert all(0.09 < errors[m, "mxfp4"].weight_error < 0.16 for m in modules)  # normal weights: about 0.12
    assert all(0.015 < errors[m, "fp8"].weight_error < 0.035 for m in modules)  # 3 mantissa bits: about 0.026
    assert {(n, f) for n in (0, 1) for f in ("mxfp4", "fp8")} == {(x.layer, x.fmt) for x in found.layer_losses}


def test_module_with_outliers_is_proposed_for_bf16(make, ids):
    """Rare huge weights in one v_proj, a hundred times the rest of their blocks, put its whole stack on the list."""
    from vllm_tuner.calibrate.proposals import by_sensitivity, ignore_list

    def spoil(weights):
        weights["model.layers.1.self_attn.v_proj.weight"][:, ::32] *= 20.0
        weights["model.layers.1.input_layernorm.weight"][::32] = 0.0  # nothing flows through those columns
        return weights

    found = losses(make("llama", spoil, num_hidden_layers=8), ids, ("mxfp4",)).module_losses

    assert "model.layers.1.self_attn.v_proj" == by_sensitivity(found, "mxfp4")[0].module
    stack = tuple(f"model.layers.1.self_attn.{name}_proj" for name in "kqv")
    assert stack == ignore_list(found, "mxfp4")
    assert () == ignore_list(found, "fp8")


def test_gate_refuses_a_wrong_scale_in_one_layer(make):
    """FP8 weights with a scale a channel pass; the same with one matrix of one layer off by four do not."""
    from vllm_tuner.calibrate.quantized import quality
    from vllm_tuner.calibrate.testing import prompts

    folder, text = make("llama"), prompts(24, 32, 96, seed=9)
    plain = quality(folder, text, "fp8", Sensitivity.TOLERANT)
    broken = quality(folder, text, "fp8", Sensitivity.TOLERANT, wrong_scale={"model.layers.1.mlp.down_proj": 4.0})

    assert plain.passed, plain.reasons()
    assert not broken.passed


def test_one_matrix_is_in_memory_at_a_time(make, ids, monkeypatch):
    """Of a layer's weights no more than three (gate, up, down) are alive together, whatever the number of experts."""
    import weakref

    from vllm_tuner.calibrate.weights import Weights

    alive, most = weakref.WeakSet(), [0]
    original = Weights.get

    def watched(self, name):
        weight = original(self, name)
        if weight.dim() == 2:
            alive.add(weight)
            most[0] = max(most[0], len(alive))
        return weight

    monkeypatch.setattr(Weights, "get", watched)
    outputs(make("moe"), ids)

    assert 1 <= most[0] <= 4  # and the one that is just being replaced


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model_type": "gpt_oss"}, UnsupportedModel, "no forward pass for model_type 'gpt_oss'"),
        ({"quantization_config": {"quant_method": "fp8"}}, UnsupportedModel, "quantized already"),
        ({"hidden_act": "gelu"}, UnsupportedModel, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, UnsupportedModel, "yarn"),
        ({"num_attention_heads": "four"}, BadInput, "config.json"),
    ],
)
def test_what_is_not_known_is_refused(make, ids, change, error, says):
    """Another architecture, quantized weights, an activation or rotation that we don't have: one line."""
    folder = make("llama")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(error, match=says):
        outputs(folder, ids)


def test_missing_weights_are_named(make, ids):
    """A checkpoint without a matrix that its config promises."""
    folder = make("llama", lambda w: {n: x for n, x in w.items() if "layers.2.mlp.up_proj" not in n})

    with pytest.raises(BadInput, match=r"has no model\.layers\.2\.mlp\.up_proj\.weight"):
        outputs(folder, ids)


def test_foreign_tokens_are_refused(make):
    """Token ids of another vocabulary would read another model's rows."""
    with pytest.raises(BadInput, match="token 96 in a vocabulary of 96"):
        cache_kl(make("llama"), [[1, 96]])


@pytest.mark.slow
def test_smollm2():
    """The bar, on a trained model: with keys 100 times as large, scales save it; on the plain one they are no worse.

    The gate takes FP8 weights with a scale a channel, and refuses one layer whose scale is wrong.
    """
    from vllm_tuner.calibrate import prompts as text
    from vllm_tuner.calibrate.quantized import quality

    folder = smollm2()
    encode = text.tokenizer(folder)
    ids = [p[:64] for p in text.of_text(encode, budget=4096, longest=256) if len(p) > 60][:8]

    plain, large = bars(folder, ids), bars(folder, ids, {"k_proj": 100.0, "q_proj": 0.01})
    assert large[0] > 10 * large[1]
    assert plain[1] <= plain[0]
    assert quality(folder, ids, "fp8", Sensitivity.NORMAL).passed
    assert not quality(folder, ids, "fp8", Sensitivity.NORMAL, wrong_scale={"model.layers.9.mlp.down_proj": 4.0}).passed


def smollm2():
    """The real model, where the proof tests keep it."""
    kept = os.environ.get("ADVISOR_TEST_MODELS")
    folder = Path(kept or ".") / "smollm2"
    if not (kept and (folder / "model.safetensors").exists()):
        pytest.skip("ADVISOR_TEST_MODELS has no smollm2")
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    return folder


def bars(folder, ids, factors=None):
    """Mean KL of a cache with scale 1, and calibrated; `factors` multiply projections by name."""
    from vllm_tuner.calibrate.divergence import compare_all
    from vllm_tuner.calibrate.observe import KvObserver
    from vllm_tuner.calibrate.scales import scales_of
    from vllm_tuner.calibrate.simulate import SimulatedCache

    def weight(_, module, weight):
        return weight * (factors or {}).get(module.rsplit(".", 1)[1], 1.0)

    watch, cache = (type("Changed", (base,), {"weight": weight}) for base in (KvObserver, SimulatedCache))
    seen = watch()
    exact, one, ours = outputs(folder, ids, seen, cache(), cache(lambda layer: scales_of(seen.layer(layer))))
    return mean_kl(compare_all(exact, one, ids)), mean_kl(compare_all(exact, ours, ids))

"""Read a Hugging Face config into a `ModelSpec`: what the model is, what a request keeps, what its weights weigh.

Three answers: a spec; a spec whose `unknowns` say what could not be told (an architecture or layer kind that is not
known: nothing is guessed for it); or an error, in one line, for a config that is broken or no decoder language model.
Nothing of a repository is executed and `auto_map` is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput, UnsupportedModel
from vllm_advisor.model.defaults import ALWAYS, NESTED
from vllm_advisor.model.fields import MAX_LAYERS, MAX_POSITIONS, Fields
from vllm_advisor.model.parts import with_parts
from vllm_advisor.model.quantization import Recipe, read_recipe
from vllm_advisor.model.sheet import Sheet, weigh
from vllm_advisor.model.spec import ModelSpec


if TYPE_CHECKING:
    from collections.abc import Mapping


NESTS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")

# Why an architecture is refused. vLLM removed encoder-decoder models except Whisper with V0 (registry.py:854-857).
ENCODER_DECODER: Mapping[str, str] = {
    "whisper": "it transcribes speech", "mllama": "its cross-attention layers were last supported in vLLM 0.10.2",
    "bart": "", "mbart": "", "t5": "", "mt5": "", "umt5": "", "pegasus": "", "marian": "", "m2m_100": "", "led":
    "", "donut-swin": "", "vision-encoder-decoder": "", "encoder-decoder": "", "florence2": "", "blenderbot": "",
    "t5gemma": "",
}  # fmt: skip
ENCODERS = frozenset((
    "bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "modernbert",
    "nomic_bert", "mpnet", "camembert", "new", "gte", "jina_bert", "xlm", "clip", "siglip", "vit", "dinov2",
    "wav2vec2", "bge", "esm", "layoutlm", "eurobert", "neobert",
))  # fmt: skip


def read(mapping: object, *, name: str = "", source: str = "", provenance: str = "") -> ModelSpec:
    """A spec from the contents of a config.json.

    `name` is the repository or folder, `source` where the config came from, `provenance` one of spec's classes.
    Raises BadInput for a broken config and UnsupportedModel for encoder-decoder, encoder-only and embedding models.
    A float32 checkpoint is described as vLLM loads it: in 16 bits (vllm/config/model.py:_resolve_auto_dtype).
    """
    config = Fields(mapping)
    text = _text_part(config)
    architectures = config.texts("architectures") or text.texts("architectures")
    architecture = architectures[0] if architectures else ""
    outer_type, model_type = config.text("model_type"), text.text("model_type") or config.text("model_type")
    if not (architecture or model_type):
        raise BadInput("the config names neither an architecture nor a model_type", "is it the config.json of a model?")
    _refuse(config, architecture, outer_type, model_type)
    text = _completed(config, text, model_type)
    sheet, recipe = _fill(config, text, architecture, model_type)
    _loose_ends(sheet, recipe, name)
    return _spec(config, text, sheet, recipe, (name, architecture or model_type, model_type, provenance, source))


def _text_part(config: Fields) -> Fields:
    """The language model's own config: nested in multimodal ones, once or twice (Qwen2.5-Omni)."""
    part = config
    for _ in range(3):
        inner = next((key for key in NESTS if part.has(key)), None)
        if inner is None or (part is not config and part.has("num_hidden_layers")):
            return part
        part = part.sub(inner) or part
    return part


def _completed(config: Fields, text: Fields, model_type: str) -> Fields:
    """The text config with the class defaults that published files rely on."""
    supplied = dict(ALWAYS.get(model_type, {}))
    if text.where and text.has("model_type"):
        supplied |= NESTED.get(model_type, {})
    elif config is text and not supplied:
        return text
    return text.over(supplied)


def _refuse(config: Fields, architecture: str, outer: str, inner: str) -> None:
    for kind in (outer, inner):
        if kind in ENCODER_DECODER or config.flag("is_encoder_decoder"):
            why = ENCODER_DECODER.get(kind)
            raise UnsupportedModel(
                f"{architecture or kind} is an encoder-decoder model" + (f": {why}" if why else ""),
                "this plans decoder language models; vLLM serves encoder-decoders other than Whisper only by plug-in",
            )
        if kind in ENCODERS:
            raise UnsupportedModel(f"{architecture or kind} is not a generative language model", _NOT_GENERATIVE)
    if architecture.endswith("Model") and architecture not in _GENERATIVE_MODELS:
        raise UnsupportedModel(
            f"{architecture} has no output head: it embeds text, it does not generate", _NOT_GENERATIVE
        )
    if architecture.endswith(_HEADLESS):
        raise UnsupportedModel(f"{architecture} scores or classifies text, it does not generate", _NOT_GENERATIVE)


_NOT_GENERATIVE = "choose a checkpoint that generates text, for instance one of `advisor models`"
_GENERATIVE_MODELS = frozenset(("Qwen2_5OmniModel", "ChatGLMModel", "GPT2LMHeadModel"))
_HEADLESS = ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM", "RewardModel", "ForRetrieval")


def _fill(config: Fields, text: Fields, architecture: str, model_type: str) -> tuple[Sheet, Recipe]:
    from vllm_advisor.model.families import find  # noqa: PLC0415  only a config needs the families, the catalog does not

    layers = _layer_count(text)
    hidden = text.count("hidden_size", "n_embd", "d_model", default=0, low=0)
    sheet = Sheet(hidden, layers)
    recipe = read_recipe(config, text)
    family = find(model_type, architecture)
    if family is None:
        sheet.unknowns.append(
            f"architecture {(architecture or model_type)[:80]} is not known: its layers cannot be told"
        )
        return sheet, recipe
    if not layers or not hidden:
        missing = "num_hidden_layers" if not layers else "hidden_size"
        raise BadInput(f"{missing} is missing", "check the model's config.json")
    family.read(sheet, config, text)
    if text.where or config.has("vision_config") or config.has("audio_config"):
        from vllm_advisor.model.towers import add_towers  # noqa: PLC0415

        add_towers(sheet, config)
    return sheet, recipe


def _layer_count(text: Fields) -> int:
    keys = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    listed = text.raw("layers_block_type")  # Nemotron 3 Ultra gives the list alone
    default = len(listed) if isinstance(listed, list) else 0
    return text.bounded("layers_block_type", text.count(*keys, default=default, low=0, high=MAX_LAYERS), 0, MAX_LAYERS)


def _loose_ends(sheet: Sheet, recipe: Recipe, name: str) -> None:
    """What is known to be unknown beyond the family."""
    if recipe.unknown:
        sheet.unknowns.append(recipe.unknown)
    if recipe.quantization.method == "none":
        lowered = name.lower()
        for mark in ("gguf", "exl2", "exl3"):
            if mark in lowered:
                sheet.unknowns.append(f"the name says {mark}: the config does not say how the weights are stored")


def _spec(
    config: Fields, text: Fields, sheet: Sheet, recipe: Recipe, known: tuple[str, str, str, str, str]
) -> ModelSpec:
    name, architecture, model_type, provenance, source = known
    weights = weigh(sheet, recipe)
    q = text.count("num_attention_heads", "n_head", default=0, low=0, high=1 << 14)
    return ModelSpec(
        name=name,
        architecture=architecture,
        model_type=model_type,
        dtype=_dtype(config, text),
        hidden_size=sheet.hidden,
        num_layers=len(sheet.layers),
        vocab_size=text.count("vocab_size", "padded_vocab_size", default=0, low=0, high=1 << 26),
        max_position=_positions(config, text),
        attention_heads=q,
        kv_heads=max((c.kv_heads for c in sheet.caches if c.kind in _HEADED), default=0) or _kv_heads(text, q),
        caches=tuple(sheet.caches),
        weights=weights,
        intermediate_size=_intermediate(text),
        moe=sheet.moe,
        quantization=with_parts(recipe, sheet.tensors),
        tied_embeddings=not any(g.role == "lm_head" for g in weights) and bool(weights),
        modalities=_modalities(config),
        mtp_layers=sheet.mtp_layers,
        unknowns=tuple(dict.fromkeys(sheet.unknowns)),
        provenance=provenance,
        source=source,
        tower_widths=sheet.tower_widths,
        bidirectional_images=_bidirectional_images(config, text),
    )


_HEADED = frozenset(("full", "sliding", "chunked"))


def _bidirectional_images(config: Fields, text: Fields) -> bool:
    """As transformers_utils/model_arch_config_convertor.py decides it: :344-366, Gemma 4 :781-788."""
    if not _modalities(config):
        return False
    outer = config.text("model_type")
    return outer in _PREFIX_MODELS or text.raw("use_bidirectional_attention") == "vision"


_PREFIX_MODELS = frozenset(("bagel", "gemma3", "molmo2", "moondream3", "paligemma"))


def _kv_heads(text: Fields, q: int) -> int:
    return text.count("num_key_value_heads", default=q, low=0, high=1 << 14)


def _dtype(config: Fields, text: Fields) -> str:
    """The dtype that vLLM runs in: float32 checkpoints are cast to bfloat16."""
    for place in (config, text):
        for key in ("dtype", "torch_dtype"):
            named = place.text(key).removeprefix("torch.")
            if named in {"bfloat16", "float16"}:
                return named
    return "bfloat16"


def _positions(config: Fields, text: Fields) -> int:
    keys = (
        "max_position_embeddings",
        "model_max_length",
        "n_positions",
        "max_sequence_length",
        "seq_length",
        "max_seq_len",
    )
    for place in (text, config):
        found = place.count(*keys, default=0, low=0, high=MAX_POSITIONS)
        if found:
            return found
    return 0


def _intermediate(text: Fields) -> int:
    value = text.raw("intermediate_size")
    if isinstance(value, list):
        return max(text.ints("intermediate_size"), default=0)
    return (
        text.count("intermediate_size", "ffn_dim", "ffn_hidden_size", "moe_intermediate_size", default=0, low=0)
        if not isinstance(text.raw("moe_intermediate_size"), list)
        else text.count("intermediate_size", default=0, low=0)
    )


def _modalities(config: Fields) -> tuple[str, ...]:
    places = [config] + [sub for key in NESTS if (sub := config.sub(key))]
    found = []
    for kind, keys in (("image", ("vision_config", "visual")), ("audio", ("audio_config",))):
        if any(isinstance(p.raw(key), dict) for p in places for key in keys):
            found.append(kind)
    return tuple(found)

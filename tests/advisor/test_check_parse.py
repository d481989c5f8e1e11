"""A command as one version's parser reads it: FlexibleArgumentParser's rules, without ever stopping."""

import pytest

from vllm_advisor.check import options, read
from vllm_advisor.check.parse import parse
from vllm_advisor.check.values import mapping
from vllm_advisor.vllm import surface


def parsed(text, version="0.33.0"):
    return parse(read.command_line(["vllm", "serve", *text.split()]), surface.load(version))


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        ("m --tensor-parallel-size 8", "--tensor-parallel-size", "8"),
        ("m --tensor_parallel_size=8", "--tensor-parallel-size", "8"),
        ("m -tp 8", "--tensor-parallel-size", "8"),
        ("m -tp=8", "--tensor-parallel-size", "8"),
        ("m --tensor-par 8", "--tensor-parallel-size", "8"),
        ("m -qfp8", "--quantization", "fp8"),
        ("m -O3", "--optimization-level", "3"),
        ("m -O=3", "--optimization-level", "3"),
        ("m -O 3", "--optimization-level", "3"),
        ("m --max-model-len -1", "--max-model-len", "-1"),
        ("m --served-model-name a b --port 1", "--served-model-name", "a b"),
        ("m --served-model-name=a", "--served-model-name", "a"),
        ("m --port 1 --port 2", "--port", "2"),
        ("m --seed=", "--seed", ""),
    ],
)
def test_every_spelling_of_an_option_is_read(typed, name, value):
    """Underscores, `=`, short forms, abbreviations, attached values, lists; the last one counts."""
    reading = parsed(typed)

    assert ("m", value, ()) == (reading.model, reading.value(name), reading.surplus)


@pytest.mark.parametrize(
    ("typed", "version", "name", "on"),
    [
        ("m --enforce-eager", "0.24.0", "--enforce-eager", True),
        ("m --no-enforce-eager", "0.24.0", "--enforce-eager", False),
        ("m --no_enable_prefix_caching", "0.33.0", "--enable-prefix-caching", False),
        ("m -ep", "0.33.0", "--enable-expert-parallel", True),
        ("m", "0.33.0", "--enforce-eager", None),
    ],
)
def test_switches_are_on_off_or_not_given(typed, version, name, on):
    """A `--no-` form is off."""
    assert on is parsed(typed, version).on(name)


def test_since_0_33_enable_and_disable_are_a_pair():
    """`--disable-log-requests` is `--enable-log-requests` switched off; 0.24 has no such option."""
    word = "--disable-log-requests"

    assert ("--enable-log-requests", True) == (options.read(word, surface.load("0.33.0")).flag.name, True)
    assert options.read(word, surface.load("0.24.0")).flag is None


@pytest.mark.parametrize(
    ("typed", "model"),
    [
        ("m -tp 8", "m"),
        ("-tp 8 m", "m"),
        ("-tp 8", None),
        ("-- m", "m"),
        ("m --model other", "other"),
        ("--model=other", "other"),
        ("--enforce-eager m", "m"),
        ("--api-key a m", None),
    ],
)
def test_the_model_is_what_vllm_takes_for_it(typed, model):
    """The first free word, unless --model is given; a list before it swallows it."""
    assert model == parsed(typed).model


def test_the_module_reads_its_model_from_the_option_only():
    """`python -m …api_server m` ignores the word."""
    module = ["python", "-m", "vllm.entrypoints.openai.api_server"]
    loaded = surface.load("0.33.0")

    assert ((3,), None) == parse(read.command_line([*module, "m"]), loaded)[3:0:-2]
    assert "n" == parse(read.command_line([*module, "--model", "n"]), loaded).model


def test_words_without_a_place_are_surplus():
    """A second free word, and what follows a switch."""
    reading = parsed("m --enforce-eager true x")

    assert ("true", "x") == tuple(reading.invocation.argv[i] for i in reading.surplus)


def test_an_unknown_option_keeps_its_value():
    """--calculate-kv-scales was a switch, --foo may have a value, so the model is found in both."""
    reading = parsed("m --calculate-kv-scales --foo 4 --port 1")

    assert [(None, None), (None, "4"), ("--port", "1")] == [(s.flag and s.flag.name, s.value) for s in reading.settings]


def test_settings_bound_their_words():
    """`word` and `end` are a slice of argv."""
    reading = parsed("m -tp 8 --enforce-eager --served-model-name a b")

    assert [("-tp", "8"), ("--enforce-eager",), ("--served-model-name", "a", "b")] == [
        reading.invocation.argv[s.word : s.end] for s in reading.settings
    ]


@pytest.mark.parametrize(
    ("typed", "merged"),
    [
        ('m -cc {"mode":3}', {"mode": 3}),
        ("m -cc.mode 3 --compilation-config.pass_config.x=true", {"mode": 3, "pass_config": {"x": True}}),
        ("m -cc.sizes+ 1,2 -cc.sizes+=3", {"sizes": ["1", "2", "3"]}),
        ('m -cc {"a":1} -cc.mode 3', {"mode": 3}),
        ("m -cc {broken", {}),
        ("m", {}),
    ],
)
def test_json_is_merged_as_vllm_does(typed, merged):
    """Dotted keys make one value, which replaces a whole value given beside them."""
    assert merged == mapping(parsed(typed), "--compilation-config")

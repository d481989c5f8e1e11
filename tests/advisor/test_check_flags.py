"""What is said of options and their values: by id, with the change that mends it, for the version asked about."""

import json
from pathlib import Path

import pytest

from vllm_advisor.check import fix, flags, read, values
from vllm_advisor.check.ids import BY_ID, IDS
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.rules.table import RULES
from vllm_advisor.vllm import surface


PARSER = json.loads((Path(__file__).parents[1] / "data" / "check" / "parser-0.32.0.json").read_text(encoding="utf-8"))
# What vLLM refuses after its parser: in its configuration, when it validates, or not at all (--config=FILE).
BEHIND_THE_PARSER = {"VAL-07", "VAL-08", "VAL-09", "FLG-12"}


def found(words, version="0.33.0"):
    words = words.split() if isinstance(words, str) else words
    loaded = surface.load(version)
    reading = parse(Invocation(("vllm", "serve", *words)), loaded)
    return [*flags.findings(reading, loaded), *values.findings(reading, loaded)]


def mended(words, version="0.33.0"):
    """The words behind `vllm serve` after every change."""
    invocation = read.command_line(["vllm", "serve", *words.split()])
    return " ".join(fix.apply(invocation, [f.change for f in found(words, version)]).argv[2:])


@pytest.mark.parametrize(("words", "verdict"), PARSER["rows"], ids=lambda value: " ".join(value) if value else "-")
def test_we_refuse_what_the_real_parser_refuses(words, verdict):
    """An error of ours is an error of vLLM's own parser and the reverse, and the model is the same word."""
    loaded = surface.load(PARSER["version"])
    errors = [f.id for f in found(words, PARSER["version"]) if f.level == "error" and f.id not in BEHIND_THE_PARSER]

    assert (verdict is False) == bool(errors), errors
    if verdict is not False and not any(w.startswith("--model") for w in words):
        assert verdict == parse(Invocation(("vllm", "serve", *words)), loaded).model


@pytest.mark.parametrize(
    ("words", "version", "finding_id", "says"),
    [
        ("m --no-such-thing 3", "0.33.0", "FLG-01", "has no --no-such-thing"),
        ("m --calculate-kv-scales", "0.33.0", "FLG-02", "0.27.1 was the last to have it"),
        ("m --swap-space 4", "0.24.0", "FLG-02", "is gone"),
        ("m --max-num-queued-reqs 4", "0.24.0", "FLG-03", "came with vLLM 0.29.0"),
        ("m --quant fp8", "0.33.0", "FLG-04", "--quantization, --quantization-config"),
        ("m --tensor-par 8", "0.33.0", "FLG-05", "--tensor-parallel-size"),
        ("m --disable-cascade-attn", "0.33.0", "FLG-06", "deprecated"),
        ("m --port 80 --port 81", "0.33.0", "FLG-07", "--port 80 and --port 81"),
        ("m x", "0.33.0", "FLG-08", "'x' is neither"),
        ("m –enforce-eager", "0.33.0", "FLG-08", "word processor"),
        ("--model m", "0.33.0", "FLG-09", "will be removed"),
        ("--port 80", "0.33.0", "FLG-10", "Qwen/Qwen3-0.6B"),
        ("m --config=c.yaml", "0.33.0", "FLG-12", "is not read"),
        ("m --config c.json", "0.33.0", "FLG-12", ".yaml or .yml"),
        ("m --config /nowhere/c.yaml", "0.33.0", "FLG-13", "not judged"),
        ('m -cc {"mode":3} -cc.mode 3', "0.33.0", "FLG-15", "replace"),
        ("m -tp $TP", "0.33.0", "FLG-16", "-tp $TP"),
        ("m --help", "0.33.0", "FLG-17", "starts no server"),
        ("--served-model-name=a", "0.33.0", "FLG-18", "vLLM stops"),
        ("m --port", "0.33.0", "VAL-01", "no value"),
        ("m --enforce-eager=true", "0.33.0", "VAL-02", "takes no value"),
        ("m --enforce-eager true", "0.33.0", "VAL-02", "unrecognized argument"),
        ("m --max-num-seqs 1k", "0.33.0", "VAL-03", "whole number"),
        ("m --block-size 1k", "0.24.0", "VAL-03", "whole number"),
        ("m --gpu-memory-utilization 90%", "0.33.0", "VAL-04", "not a number"),
        ("m --speculative-config {'a':1}", "0.33.0", "VAL-05", "at character 2"),
        ("m -cc 3", "0.33.0", "VAL-05", "must be an object"),
        ("m --port.x 3", "0.33.0", "VAL-05", "has no keys"),
        ("m --moe-backend aiter_mega_moe", "0.24.0", "VAL-06", "it came with 0.32.0"),
        ("m --kv-cache-dtype fp8_e4m3fn", "0.24.0", "VAL-06", "has no --kv-cache-dtype"),
        ("m --kv-cache-dtype fp8_e4m3fn", "0.33.0", "VAL-07", "has no --kv-cache-dtype"),
        ("m --quantization bitsandbytes", "0.33.0", "VAL-07", "was the last to have it"),
        ("m --attention-backend nope", "0.33.0", "VAL-07", "has no --attention-backend"),
        ("m -O4", "0.33.0", "VAL-07", "has no -O 4"),
        ("m --gpu-memory-utilization 1.2", "0.33.0", "VAL-08", "above 0 and at most 1"),
        ("m -tp 0", "0.24.0", "VAL-08", "at least 1"),
        ("m -q fp_quant", "0.33.0", "VAL-09", "deprecated"),
    ],
)
def test_a_fault_has_its_id_and_says_what(words, version, finding_id, says):
    """One finding of that id, at its usual level, with a source."""
    (one,) = [f for f in found(words, version) if f.id == finding_id]

    assert says in one.text
    assert (BY_ID[finding_id].level, True) == (one.level, bool(one.source))


@pytest.mark.parametrize(
    "words",
    [
        "m -tp 8 --max-model-len 32k --gpu-memory-utilization 1 --kv-cache-dtype fp8",
        "m --attention-backend flash_attn --quantization fp8_per_tensor -O3",
        "m --max-model-len auto --max-num-batched-tokens 8K --kv-cache-memory-bytes 10G",
        'm --speculative-config {"method":"mtp","num_speculative_tokens":1} -cc.mode 3',
        "m --api-key $KEY --host $HOST",
        "m --reasoning-parser own --reasoning-parser-plugin own.py",
        "m --middleware a --middleware b --revision=",
        "m --mamba-cache-mode all",
    ],
)
def test_a_command_without_a_fault_has_no_finding(words):
    """Silence is an answer; 0.24.0 took `all`."""
    assert [] == found(words, "0.24.0" if "mamba" in words else "0.33.0")


@pytest.mark.parametrize(
    ("words", "version", "after"),
    [
        ("--model m --port 1", "0.33.0", "m --port 1"),
        ("--port 1 --model=m", "0.33.0", "m --port 1"),
        ("m --swap-space 4 --port 1", "0.33.0", "m --port 1"),
        ("m --tp 8", "0.33.0", "m --tensor-parallel-size 8"),
        ("m --tensor-paralel-size=8", "0.33.0", "m --tensor-parallel-size=8"),
        ("m --enforce-eager true --port 1", "0.33.0", "m --enforce-eager --port 1"),
        ("m --enable-prefix-caching=false", "0.33.0", "m --no-enable-prefix-caching"),
        ("m --headless=false", "0.33.0", "m"),
        ("m --max-num-seqs 1k", "0.33.0", "m --max-num-seqs 1000"),
        ("m --max-num-seqs=1,024", "0.33.0", "m --max-num-seqs=1024"),
        ("m --kv-cache-dtype=fp8_e4m3fn", "0.33.0", "m --kv-cache-dtype fp8_e4m3"),
        ("m --dtype BF16", "0.33.0", "m --dtype bfloat16"),
        ("m --quantization ptpc_fp8", "0.33.0", "m --quantization fp8_per_channel"),
        ("m --config=c.yaml", "0.33.0", "m --config c.yaml"),
        ("m -q fp_quant", "0.33.0", "m -q fp_quant --allow-deprecated-quantization"),
        ("m –tensor-parallel-size 8", "0.33.0", "m --tensor-parallel-size 8"),
        ("m x", "0.33.0", "m x"),
    ],
)
def test_what_can_be_mended_without_a_question_is(words, version, after):
    """One round of changes."""
    assert after == mended(words, version)


def test_a_config_that_says_false_is_dropped_before_0_28(tmp_path):
    """`enable-prefix-caching: false` left it on; from 0.28.0 it is turned off."""
    path = tmp_path / "c.yaml"
    path.write_text("model: m\nenable-prefix-caching: false\nheadless: false\n")
    (invocation,) = read.file(path)
    old, new = surface.load("0.24.0"), surface.load("0.28.0")

    assert ["FLG-14"] == [f.id for f in flags.findings(parse(invocation, old), old)]
    assert () == flags.findings(parse(invocation, new), new)


def test_ids_are_unique_and_none_takes_a_rules_meaning():
    """Rules keep their ids; of our own families only ENV-03 is one of theirs, for the same thing."""
    ids = [row.id for row in IDS]
    rules = {rule.id for rule in RULES}

    assert len(ids) == len(set(ids))
    assert set() == {i for i in ids if i.startswith(("FLG-", "VAL-", "ENV-1"))} & rules

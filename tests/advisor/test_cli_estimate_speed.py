"""`advisor estimate` under a load: one configuration's speed, in text and JSON."""

import json

import pytest
from typer.testing import CliRunner

from vllm_advisor.cli.app import app
from vllm_advisor.errors import UsageError


ONE = ("estimate", "Qwen/Qwen3-8B", "--gpu", "L40S", "--max-model-len", "8192")


def run(*args):
    return CliRunner().invoke(app, [*ONE, *args], catch_exceptions=False)


def speed(*args):
    return json.loads(run(*args, "--json").stdout)["speed"]


def test_no_load_is_no_speed():
    """Memory alone is answered where memory alone was asked."""
    assert "speed" not in json.loads(run("--json").stdout)
    assert "Speed (an estimate)" not in run().stdout


def test_each_figure_has_its_interval():
    """Under the names of public measurements, low and high around the middle."""
    found = speed("--concurrency", "8")

    for name in ("output_tok_s", "total_tok_s", "mean_ttft_ms", "mean_tpot_ms"):
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]


def test_more_requests_at_once_give_more_tokens_each_later():
    """Throughput and time per token both rise with the load."""
    few, many = speed("--concurrency", "1"), speed("--concurrency", "32")

    assert many["output_tok_s"] > 5 * few["output_tok_s"]
    assert many["mean_tpot_ms"] > few["mean_tpot_ms"]


def test_longer_prompts_wait_longer():
    """Four times the prompt, at least twice the time to the first token."""
    short, long = (speed("--concurrency", "4", "--input-tokens", n) for n in ("500", "4k"))

    assert long["mean_ttft_ms"] > 2 * short["mean_ttft_ms"]


def test_a_request_rate_sets_the_throughput():
    """Far below what the server could do, tokens come out as fast as requests come in."""
    assert (
        pytest.approx(0.5 * 200, rel=0.05) == speed("--request-rate", "0.5", "--output-tokens", "200")["output_tok_s"]
    )


def test_the_text_says_that_it_is_an_estimate():
    """Beside the figures."""
    assert "Speed (an estimate)" in run("--concurrency", "8").stdout


def test_a_load_does_not_go_with_a_batch(tmp_path):
    """Rows bring their own."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="--batch takes everything from its rows"):
        CliRunner().invoke(app, ["estimate", "--batch", str(rows), "--concurrency", "8"], catch_exceptions=False)

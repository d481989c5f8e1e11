"""What tokens cost: the price of a GPU hour, where it comes from, and what it makes of the answer."""

import json

import pytest
from typer.testing import CliRunner

from vllm_advisor.catalog import gpus
from vllm_advisor.cli import price
from vllm_advisor.cli.app import app
from vllm_advisor.errors import BadInput, UsageError


H100 = gpus.node("8xH100")


def run(*args):
    return CliRunner().invoke(app, ["recommend", "Qwen/Qwen3-8B", "--gpu", "L40S", *args], catch_exceptions=False)


def listed(tmp_path, text):
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_no_price_is_no_cost():
    """Nothing was given, nothing is shown."""
    assert price.hourly(None, None, H100) is None
    assert "cost of 1M" not in run().stdout


def test_a_price_list_is_read_by_the_gpus_name(tmp_path):
    """With or without the vendor, in any case."""
    file = listed(tmp_path, '"h100 sxm" = 2.49\n"MI300X" = 1.9\n')

    assert 2.49 == price.hourly(None, file, H100)
    assert 1.9 == price.hourly(None, file, gpus.node("MI300X"))


@pytest.mark.parametrize(
    "text", ["", '"H200 SXM" = 3', '"H100 SXM" = "much"', '"H100 SXM" = true', "[broken", '"H100 SXM" = -1']
)
def test_a_list_without_this_gpu_is_refused_with_an_example(tmp_path, text):
    """One line of how it should look."""
    with pytest.raises(BadInput) as caught:
        price.hourly(None, listed(tmp_path, text), H100)
    assert '"NVIDIA H100 SXM" = 2.49' in caught.value.hint


def test_two_prices_are_one_too_many(tmp_path):
    """A number and a list."""
    with pytest.raises(UsageError):
        price.hourly(1.0, listed(tmp_path, ""), H100)


def test_the_cost_in_json_is_price_over_tokens():
    """A GPU at 3.6 an hour makes 0.001 a second; a million tokens take a million over the rate."""
    best = json.loads(run("--price", "3.6", "--json").stdout)["plans"][0]
    devices, rate = best["plan"]["tensor_parallel_size"], best["estimate"]["output_tok_s"]["mid"]

    assert pytest.approx(0.001 * devices * 1e6 / rate, rel=1e-3) == best["cost"]["per_million_output_tokens"]["mid"]


def test_the_cost_stands_in_the_table():
    """A column of its own."""
    assert "cost of 1M out" in run("--price", "2").stdout


def test_ties_name_what_would_settle_them():
    """Plans whose estimates nobody can tell apart are named by number, with the command that measures them."""
    answer = json.loads(run("--json").stdout)

    assert answer["ties"] == [] or 1 in answer["ties"]
    assert (answer["settled_by"] is None) == (answer["ties"] == [])

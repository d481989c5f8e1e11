"""Quantities are parsed and printed in one way everywhere."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.errors import AdvisorError, UsageError
from vllm_advisor.units import GIB, Interval, count, gib, milliseconds, parse_tokens, rate, significant


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("131072", 131072), ("128k", 128_000), ("128K", 131_072), ("1m", 1_000_000), ("1.5K", 1536), ("131,072", 131_072)],
)
def test_tokens_are_read_as_vllm_reads_them(text, tokens):
    """A lower-case suffix is decimal, an upper-case one binary, as in vLLM's own human-readable integers."""
    assert tokens == parse_tokens(text)


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "0.5", "nan", "inf", "12q", "k"])
def test_what_is_no_number_of_tokens_is_refused(text):
    """Anything but a positive number is a usage error with a hint."""
    with pytest.raises(UsageError) as caught:
        parse_tokens(text)

    assert caught.value.hint


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(text):
    """Whatever is typed gives at least one token or an AdvisorError."""
    with contextlib.suppress(AdvisorError):
        assert parse_tokens(text) >= 1


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,230"), (12.345, "12.3"), (0.012345, "0.0123"), (0, "0"), (999_999, "1,000,000")]
)
def test_an_estimate_has_three_significant_digits(value, text):
    """More digits would claim what no estimate knows."""
    assert text == significant(value)


def test_quantities_carry_their_unit():
    """Memory is binary, rates and times have their unit behind them."""
    assert ("62.5 GiB", "1,024", "1,230 tok/s") == (gib(62.5 * GIB), count(1024), rate(1234))
    assert ("12.3 ms", "12.3 s") == (milliseconds(12.34), milliseconds(12_340))


def test_an_interval_scales_as_one():
    """Changing the unit changes all three figures."""
    assert Interval(2, 4, 6) == Interval(1, 2, 3).scaled(2)

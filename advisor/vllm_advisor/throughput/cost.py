"""What tokens cost: the price of a device's hour over what the deployment makes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from vllm_advisor.facts import Estimate

_SECONDS, _MILLION = 3600.0, 1e6


def per_million_output(estimate: Estimate, devices: int, price_per_hour: float) -> Interval:
    """Cost of a million output tokens, in the price's currency; `price_per_hour` is of one device.

    Prompts are paid for with them: the whole time of all devices is laid on the output. Raises ValueError for a price
    that is negative or no number.
    """
    return _per_million(estimate.output_tok_s, devices, price_per_hour)


def per_million_total(estimate: Estimate, devices: int, price_per_hour: float) -> Interval:
    """Cost of a million tokens, those of prompts counted like those of answers."""
    return _per_million(estimate.total_tok_s, devices, price_per_hour)


def _per_million(rate: Interval, devices: int, price_per_hour: float) -> Interval:
    if not 0 <= price_per_hour < float("inf"):
        raise ValueError(f"a price of {price_per_hour} an hour")
    second = devices * price_per_hour / _SECONDS
    return Interval(second / rate.high * _MILLION, second / rate.mid * _MILLION, second / rate.low * _MILLION)

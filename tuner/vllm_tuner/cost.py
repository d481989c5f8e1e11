"""What a million tokens cost, from a measured speed: the price of the devices that the server holds, whoever uses them.

`advisor` predicts the same of an estimate (`vllm_advisor.throughput.cost`), in the same unit: a currency is the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Mapping

PRICED, UNPRICED = "usd_per_mtok", "device_s_per_mtok"
_MILLION, _HOUR_S = 1e6, 3600.0


def figures(found: Mapping[str, float], devices: int, price_hour: float | None) -> dict[str, float]:
    """Of a million output tokens: device seconds, and their price where a device's price an hour is known.

    Both are left out where nothing came out: no number stands for "never".
    """
    speed = found["output_tok_s"]
    if speed <= 0:
        return {}
    seconds = devices * _MILLION / speed
    priced = {} if price_hour is None else {PRICED: seconds * price_hour / _HOUR_S}
    return {UNPRICED: seconds} | priced

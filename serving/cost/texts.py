"""Texts of costs for `knodel top` and forecasts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from serving.cost.forecast import Forecast

UNSET: Final = (
    "no prices are set, so these are pod-hours: `prices: {cpu: 0.03, memory: 0.004}` in the settings "
    "(of a core and a GiB, for an hour) makes them money"
)
NO_FORECAST: Final = (
    "no prices are set, so there is no cost forecast: `prices: {cpu: 0.03, memory: 0.004}` in the settings file "
    "(of a core and a GiB, for an hour; `knodel up --config FILE` reads it) sets them"
)
SMALL: Final = 0.01
"""Amounts below it are shown with more than two decimals."""
MOST_DECIMALS: Final = 12


def money(amount: float, currency: str = "") -> str:
    """Return an amount as text: `12.40 EUR`, or with more decimals if it is small: `0.031 EUR`."""
    text = f"{amount:.2f}" if amount >= SMALL or not amount else f"{amount:.2g}"
    return f"{text} {currency}".strip()


def small_money(amount: float) -> str:
    """Return an amount with at least two decimals and two significant digits: `1.25`, `0.00041`."""
    digits = 1 - math.floor(math.log10(amount)) if amount > 0 else 0
    return f"{amount:.{max(2, min(digits, MOST_DECIMALS))}f}"


def forecast_lines(name: str, forecast: Forecast) -> Iterator[str]:
    """Yield the lines of the forecast of the model `name`."""
    unit = forecast.currency
    yield (
        f"model {name} costs from {money(forecast.least)} to {money(forecast.most, unit)} an hour "
        f"({money(forecast.least_month)} to {money(forecast.most_month, unit)} a month), "
        f"{money(forecast.replica, unit)} for each replica"
    )
    for kind, price in forecast.replica_by_type.items():
        yield f"  on GPUs of type {kind}: {money(price, unit)} an hour for each replica"
    if forecast.per_visit is not None and forecast.idle is not None:
        yield (
            f"  at zero it costs nothing; after its last request a replica stays for {forecast.idle:g} s: "
            f"{money(forecast.per_visit, unit)} each time"
        )
    elif not forecast.least:
        yield "  at zero it costs nothing; how long a replica stays after its last request follows its measured starts"

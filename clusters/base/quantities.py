"""Kubernetes quantities: `1`, `500m`, `1Gi`, `2e3`. Pure.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Powers of ten."""
BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Powers of two."""

THOUSANDTHS = 1000
"""Parts of a GPU are counted in thousandths of it."""

LARGEST = Decimal(2**63 - 1)
"""Kubernetes stores quantities in an int64 of the base unit."""
LONGEST_TEXT = 32
"""Characters. It bounds the arithmetic."""
MEMORY_LIMIT = "KNODEL_MEMORY_LIMIT"
"""Variable of a container on one machine, which has no control groups: its memory limit in bytes, 0 without one."""

QUANTITY = re.compile(r"([+]?(?:\d+(?:\.\d*)?|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d{1,2}))", re.ASCII)
"""The syntax of a non-negative quantity. The CustomResourceDefinitions use it too."""


def parse_quantity(text: str) -> Decimal:
    """Return the value in the base unit (cores, bytes), zero or positive.

    Raises ValueError with the allowed syntax.
    """
    match = QUANTITY.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise ValueError("must be a Kubernetes quantity such as 500m, 2 or 1Gi")
    number, binary, suffix, exponent = match.groups()
    if binary:
        value = Decimal(number) * Decimal(2) ** BINARY_SUFFIXES[binary]
    else:
        value = Decimal(number).scaleb(int(exponent) if exponent else DECIMAL_SUFFIXES[suffix or ""])
    if value > LARGEST:
        raise ValueError("is too large for a Kubernetes quantity")
    return value


def parse_part(text: str) -> int:
    """Return the thousandths of a GPU that a number such as `0.3` is. Raises ValueError."""
    try:
        part = int(Decimal(text) * THOUSANDTHS)
    except (InvalidOperation, ValueError, OverflowError):
        part = 0
    if not 0 < part <= THOUSANDTHS:
        raise ValueError("must be a number from 0.001 to 1")
    return part


def canonical_quantity(text: str) -> str:
    """Return the canonical form of Kubernetes, so that `1000m` and `1` are equal. Raises ValueError.

    Binary suffixes stay binary. Other quantities become an integer with the largest decimal suffix.
    """
    value = parse_quantity(text)
    if text[-1:] == "i" and value >= 2**10:
        return _with_suffix(value, {suffix: Decimal(2) ** power for suffix, power in BINARY_SUFFIXES.items()})
    return _with_suffix(value, {suffix: Decimal(10) ** power for suffix, power in DECIMAL_SUFFIXES.items()})


def _with_suffix(value: Decimal, units: dict[str, Decimal]) -> str:
    """Return the shortest integer form; fractions of the smallest unit are rounded up, as in Kubernetes."""
    if value == 0:
        return "0"
    for suffix, unit in sorted(units.items(), key=lambda item: -item[1]):
        if value % unit == 0:
            return f"{int(value / unit)}{suffix}"
    suffix, unit = min(units.items(), key=lambda item: item[1])
    return f"{int(-(-value // unit))}{suffix}"


def format_cores(text: str) -> str:
    """Return a CPU quantity as a decimal number of cores: `500m` is `0.5`. Raises ValueError."""
    return format(parse_quantity(text).normalize(), "f")

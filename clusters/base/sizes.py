"""Byte counts in messages: exact for limits, rounded for amounts that change. Pure."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DECIMALS_FROM: Final = 1 << 20  # bytes; smaller sizes that are not whole KiB are written in bytes
_DIGITS: Final = 10  # of a unit; larger amounts have no decimal


def format_size(count: int) -> str:
    """Return a byte count in the largest unit of which it is a multiple, else with one decimal, rounded up.

    Example:
        format_size(64 << 20), format_size(1500), format_size(3 << 29)  # "64 MiB", "1500 bytes", "1536 MiB"
    """
    for unit, size in _UNITS:
        if count and count % size == 0:
            return f"{count // size} {unit}"
    for unit, size in _UNITS:
        if count >= max(size, _DECIMALS_FROM):
            return f"{-(-10 * count // size) / 10:.1f} {unit}"  # rounded up: above a limit it also looks so
    return f"{count} bytes"


def human_bytes(count: int) -> str:
    """Return a rounded byte count: `412 MiB`, `1.3 GiB`."""
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < _DIGITS * size else f"{count / size:.0f} {unit}"
    return f"{count} bytes"

"""Command-line options of `python -m loadtests.simulate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtests.simulate.policies import POLICIES
from loadtests.simulate.trace import SHIPPED

STARTS = (2.5, 30.0, 120.0)
"""Start times in seconds: a small cached model, a large model on a local disk, a large remote model."""


def parse(arguments: Sequence[str] | None, about: str | None) -> argparse.Namespace:
    """Parse and check the options. Exits with code 2 if one is invalid."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.simulate", description=about)
    add = parser.add_argument
    add("--trace", action="append", metavar="NAME|FILE", help=f"trace: {', '.join(SHIPPED)} or a CSV file [all]")
    add(
        "--start",
        action="append",
        type=_positive,
        metavar="S",
        help="start time of a replica in seconds [2.5, 30, 120]",
    )
    add("--policy", action="append", choices=list(POLICIES), help="policy to simulate [all]")
    add("--slots", type=_whole, metavar="N", help="concurrent requests per replica [code 4, others 8]")
    add("--faster", type=_positive, default=1.0, metavar="X", help="multiply the request rate [%(default)g]")
    add(
        "--spread",
        type=_share,
        default=0.0,
        metavar="CV",
        help="coefficient of variation of service and start times [%(default)g]",
    )
    add("--shuffle", action="store_true", help="put bursts and pauses in random order")
    add("--seed", type=int, default=1, metavar="N", help="seed of random values [%(default)s]")
    add("--with", action="append", default=[], dest="overrides", type=_override, metavar="FIELD=VALUE",
        help="set a field of Knodel's scaling policy, e.g. scaleToZeroAfter=600 (seconds)")  # fmt: skip
    add("--pool", type=_count, default=0, metavar="N", help="size of Knodel's warm pool [%(default)s]")
    add(
        "--claim",
        type=_positive,
        default=3.0,
        metavar="S",
        help="start time of a claimed member in seconds [%(default)g]",
    )
    add("--price", type=_positive, default=1.0, metavar="P", help="price of a replica-hour [%(default)g]")
    add("--plots", type=Path, metavar="FOLDER", help="write an SVG file for each workload to this folder")
    options = parser.parse_args(arguments)
    options.trace = options.trace or list(SHIPPED)
    options.start = options.start or list(STARTS)
    options.policy = options.policy or list(POLICIES)
    return options


def is_default(options: argparse.Namespace) -> bool:
    """Return whether all options that affect the requirements have their defaults."""
    changed = (options.faster != 1.0, options.spread, options.shuffle, options.slots, options.overrides, options.pool)
    return not any(changed)


def _positive(text: str) -> float:
    number = float(text)
    if not 0.0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 10.0:
        raise argparse.ArgumentTypeError(f"must be from 0 to 10, not {text}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"must be from 0 to 10000, not {text}")
    return number


def _whole(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def _override(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be FIELD=VALUE with a JSON value, not {text}") from None

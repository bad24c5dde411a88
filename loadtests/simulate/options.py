"""The options of `python -m loadtests.simulate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtests.simulate.policies import POLICIES
from loadtests.simulate.trace import SHIPPED

STARTS = (2.5, 30.0, 120.0)
"""Seconds: a small model out of memory, a large one from a local disk, a large one from afar."""


def parse(arguments: Sequence[str] | None, about: str | None) -> argparse.Namespace:
    """The options, each within its range; exits with code 2 where one is not."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.simulate", description=about)
    add = parser.add_argument
    add("--trace", action="append", metavar="NAME|FILE", help=f"{', '.join(SHIPPED)} or a CSV file; all shipped ones")
    add("--start", action="append", type=_positive, metavar="S", help="seconds until a replica is ready; 2.5, 30, 120")
    add("--policy", action="append", choices=list(POLICIES), help="all")
    add("--slots", type=_whole, metavar="N", help="requests at once on a replica; code 4, others 8")
    add("--faster", type=_positive, default=1.0, metavar="X", help="so many times the requests a second [%(default)g]")
    add("--spread", type=_share, default=0.0, metavar="CV", help="variation of service and start times [%(default)g]")
    add("--shuffle", action="store_true", help="bursts and pauses in random order")
    add("--seed", type=int, default=1, metavar="N", help="of all that is random [%(default)s]")
    add("--with", action="append", default=[], dest="wishes", type=_wish, metavar="FIELD=VALUE",
        help="a field of Knodel's scaling policy, e.g. scaleToZeroAfter=600 (seconds)")  # fmt: skip
    add("--pool", type=_count, default=0, metavar="N", help="members of Knodel's warm pool [%(default)s]")
    add(
        "--claim",
        type=_positive,
        default=3.0,
        metavar="S",
        help="seconds until a claimed member is ready [%(default)g]",
    )
    add("--price", type=_positive, default=1.0, metavar="P", help="of a replica for an hour [%(default)g]")
    add("--plots", type=Path, metavar="FOLDER", help="write one SVG file a workload there")
    options = parser.parse_args(arguments)
    options.trace = options.trace or list(SHIPPED)
    options.start = options.start or list(STARTS)
    options.policy = options.policy or list(POLICIES)
    return options


def is_plain(options: argparse.Namespace) -> bool:
    """Whether traces, times and policies are as the bars mean them."""
    changed = (options.faster != 1.0, options.spread, options.shuffle, options.slots, options.wishes, options.pool)
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


def _wish(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be FIELD=VALUE with a JSON value, not {text}") from None

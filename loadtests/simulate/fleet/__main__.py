"""Compare the pool policy with fixed keep-alives of the same cost, on a simulated fleet of models.

    python -m loadtests.simulate.fleet [--hours 6] [--seeds 1-5]

The policy is the product's own (`autoscaler.warmpool.sizing.keep_alive_planner`) and begins with an empty history. The
cost of both includes all Pods, also those of the pool.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Final

from loadtests.simulate.fleet.arrivals import Traffic, make_arrivals
from loadtests.simulate.fleet.comparison import HOUR, MOST_RATIO, STREAMS, Comparison, compare
from loadtests.simulate.fleet.policies import PlannedKeepAlive
from loadtests.simulate.fleet.simulation import FleetOutcome, FleetTimes

HEAD: Final = (
    f"{'stream':<9}{'seed':>4}{'requests':>10} | {'policy: wait s':>14}{'p99 s':>7}{'starts':>8}{'cold':>6}"
    f"{'members':>9}{'pod-h':>8} | {'fixed: keep s':>13}{'wait s':>8}{'pod-h':>8} | {'+ pool: keep s':>14}{'wait s':>8}"
    f"{'pod-h':>8} | ratio"
)


def row(stream: str, seed: int, found: Comparison) -> str:
    """Return one row of the table."""
    ours = found.ours
    line = f"{stream:<9}{seed:>4}{len(ours.waits):>10} | {ours.mean_wait:>14.3f}{ours.quantile(0.99):>7.1f}"
    line += (
        f"{ours.starts:>8}{ours.cold:>6}{found.members:>9.1f}{ours.bill / HOUR:>8.1f} | {_fixed(found.alone, 13)} | "
    )
    return line + f"{_fixed(found.with_pool, 14)} | {found.ratio:.3f}"


def verdict(stream: str, ratios: Sequence[float]) -> tuple[str, bool]:
    """Return the summary line of a stream, and whether a ratio misses the aim (NaN misses it)."""
    missed = not all(ratio <= MOST_RATIO for ratio in ratios)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    line = f"{stream}: mean added wait {statistics.fmean(ratios):.3f} times that of a fixed keep-alive of the same cost"
    return f"{line} ({spread}), aim ≤ {MOST_RATIO:g}: {'MISSED' if missed else 'ok'}", missed


def _fixed(found: tuple[float, FleetOutcome] | None, width: int) -> str:
    if found is None:
        return f"{'none':>{width}}{'':>16}"
    keep, outcome = found
    return f"{keep:>{width}.1f}{outcome.mean_wait:>8.3f}{outcome.bill / HOUR:>8.1f}"


def read_seeds(text: str) -> range:
    """Return the seeds of an option: `3`, or `1-5`. Raises ArgumentTypeError."""
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed (3) or a range of seeds (1-5)") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. The exit code is 1 if the aim is missed."""
    parser = argparse.ArgumentParser(description="Compare the pool policy with fixed keep-alives of the same cost")
    parser.add_argument("--hours", type=float, default=6.0, help="hours of simulated time [%(default)s]")
    parser.add_argument("--seeds", type=read_seeds, default=read_seeds("1-5"), help="seed, or range of seeds [1-5]")
    parser.add_argument("--models", type=int, default=200, help="number of models [%(default)s]")
    parser.add_argument(
        "--usual", type=float, default=60.0, help="keep-alive that determines the budget, in seconds [%(default)s]"
    )
    parser.add_argument("--most", type=int, default=50, help="maximum size of the pool, 0 for no pool [%(default)s]")
    options = parser.parse_args(arguments)
    times, missed = FleetTimes(), False
    print(HEAD)
    for stream, variation in STREAMS.items():
        ratios = []
        for seed in options.seeds:
            arrivals = make_arrivals(Traffic(models=options.models, variation=variation), options.hours, seed)
            found = compare(arrivals, times, PlannedKeepAlive(options.models, times, options.usual, options.most))
            ratios.append(found.ratio)
            print(row(stream, seed, found), flush=True)
        line, over = verdict(stream, ratios)
        print(line, flush=True)
        missed = missed or over
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

"""Compare what a request to a language model counts: one, its share of the KV cache, or its expected tokens.

    python -m loadtests.simulate.llm [--traffic conv] [--seeds 1-3] [--seconds 600]

All policies but the oracle use Knodel's decider, each with several values of `scaleTarget`. They are compared at the
same share of late requests.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from loadtests.simulate.fleet.__main__ import read_seeds
from loadtests.simulate.llm.comparison import Curve, Point, compare, curve_of, point_of
from loadtests.simulate.llm.policies import POLICIES, Setting, targets_of
from loadtests.simulate.llm.simulation import LATE, WARM_UP
from loadtests.simulate.llm.traffic import TRAFFIC, make_traffic

HEAD: Final = f"{'':<24}{'target':>8}{'replica-s':>12}{f'TTFT > {LATE:g} s':>12}{'p95 TTFT s':>12}{'waited s':>10}"
BASES: Final = ("requests", "slots")
WEIGHTS: Final = ("tokens", "tokens, answers known")


def row(policy: str, point: Point) -> str:
    """Return one row of the table."""
    return (
        f"{policy:<24}{point.target:>8g}{point.replica_seconds:>12.0f}{point.late:>12.2%}{point.p95:>12.2f}"
        f"{point.waited:>10.0f}"
    )


def verdict(policy: str, base: str, curves: Mapping[str, Curve]) -> str:
    """Return the line that compares a policy with a base."""
    found = compare(curves[policy], curves[base])
    if not found.levels:
        return f"  {policy} ÷ {base}: the curves share no level of late requests"
    listed = ", ".join(f"{ratio:.2f} at {level:.1%}" for level, ratio in found.levels.items())
    seeds = ", ".join(f"{ratio:.2f}" for ratio in found.seeds)
    clearly = "clearly better" if found.is_clear else "not clearly better"
    return f"  {policy} ÷ {base}: {found.ratio:.2f} times the replica-s ({listed}; by seed {seeds}): {clearly}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table and a comparison for each kind of traffic."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.simulate.llm", description=main.__doc__)
    add = parser.add_argument
    add("--traffic", action="append", choices=list(TRAFFIC), help="kind of traffic [all]")
    add("--policy", action="append", choices=list(POLICIES), help="policy to simulate [all]")
    add("--target", action="append", type=float, help="scaleTarget of Knodel's decider [16, 32, 64]")
    add("--seeds", type=read_seeds, default=range(1, 4), help="seed, or range of seeds [1-3]")
    add("--seconds", type=float, default=600.0, help="seconds of traffic after the warm-up [%(default)g]")
    add("--slots", type=int, default=Setting().slots, help="running requests per replica [%(default)s]")
    add("--start", type=float, default=Setting().start, help="start time of a replica in seconds [%(default)g]")
    options = parser.parse_args(arguments)
    for kind in options.traffic or list(TRAFFIC):
        _compare(kind, options)
    return 0


def _compare(kind: str, options: argparse.Namespace) -> None:
    began = time.perf_counter()
    traffic = {seed: make_traffic(kind, WARM_UP + options.seconds, seed) for seed in options.seeds}
    rate = sum(len(one.arrivals) for one in traffic.values()) / len(traffic) / (WARM_UP + options.seconds)
    print(f"{kind}: {rate:.1f} requests/s, seeds {options.seeds[0]} to {options.seeds[-1]}", HEAD, sep="\n")
    curves: dict[str, Curve] = {}
    for policy in options.policy or list(POLICIES):
        outcomes = {}
        for target in targets_of(policy, options.target):
            outcomes[target] = [
                POLICIES[policy](one, Setting(options.slots, options.start, seed=seed), target)
                for seed, one in traffic.items()
            ]
            print(row(policy, point_of(target, outcomes[target])), flush=True)
        curves[policy] = curve_of(outcomes)
    for policy in WEIGHTS:
        for base in BASES:
            if policy in curves and base in curves:
                print(verdict(policy, base, curves))
    print(f"  ({time.perf_counter() - began:.0f} s)\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())

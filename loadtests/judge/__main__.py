"""Simulate whole rollouts and print the error rates of the judge: `python -m loadtests.judge [--rollouts 10000]`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from loadtests.bench.figure import Figure
from loadtests.judge.adversary import ATTACKS, Attack
from loadtests.judge.simulation import LONGEST, Outcomes, RolloutSimulation, World
from serving.types.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: a world, a rate, and the maximum shares of wrong results or seconds to a decision."""

    what: str
    world: World
    rate: float
    wrong: float | None = None
    missed: float | None = None
    within: float | None = None
    attacks: tuple[Attack, ...] = ()
    longest: float = LONGEST
    rollout: Rollout = field(default_factory=Rollout)


ATTACKED = 1800.0
"""Maximum simulated seconds of a rollout under attack, which may be held as long as the attack lasts."""
BAR = 0.01
"""Maximum share of rollouts with a wrong result."""
RATES = (1.0, 10.0, 100.0)
"""Requests per second to the model."""
EQUAL, EQUAL_BAD = World(), World(0.05, 0.05)
WORSE = World(0.001, 0.05)
AT_FIFTY = 500.0
"""Requests per second to the model, of which 50 go to the candidate at the first step of 10 %."""


def attacked() -> Iterator[Case]:
    """Return the cases with an adversary that sends as many requests again, of each kind and of all together."""
    for attacks in (*((one,) for one in ATTACKS), ATTACKS):
        what = attacks[0].what if len(attacks) == 1 else "all of it"
        yield Case(f"equal; {what}", EQUAL, 10.0, wrong=BAR, attacks=attacks, longest=ATTACKED)
        yield Case(f"5 % errors; {what}", WORSE, 10.0, missed=BAR, attacks=attacks, longest=ATTACKED)
        yield Case(f"3 times slower; {what}", World(slower=3.0), 10.0, missed=BAR, attacks=attacks, longest=ATTACKED)


def cases() -> Iterator[Case]:
    """Yield all cases, those with an aim first."""
    for rate in RATES:
        yield Case("equal, 0.1 % errors", EQUAL, rate, wrong=BAR)
        yield Case("equal, 5 % errors", EQUAL_BAD, rate, wrong=BAR)
        yield Case("5 % errors against 0.1 %", WORSE, rate, missed=BAR)
    yield Case("20 % errors against 0.1 %", World(0.001, 0.2), AT_FIFTY, missed=BAR, within=20.0)
    yield Case("three times slower", World(slower=3.0), AT_FIFTY, missed=BAR, within=20.0)
    yield Case("equal, latency spread widely", World(sigma=1.0), 10.0, wrong=BAR)
    yield Case("equal, 10 % of both fail for a minute", World(outage=0.1), 10.0, wrong=BAR)
    yield Case("equal, 5 % of both take a second", World(pauses=0.05), 10.0, wrong=BAR)
    yield Case("20 % slower, which is allowed", World(slower=1.2), 100.0, wrong=BAR)
    yield from attacked()
    yield Case("1.5 times slower", World(slower=1.5), 100.0)
    yield Case("3 % errors against 0.1 %", World(0.001, 0.03), 10.0)
    promote = Rollout(on_insufficient_traffic="promote")
    for rate in RATES:
        yield Case("5 % errors against 0.1 %, insufficient: promote", WORSE, rate, rollout=promote)


HEAD = (
    f"{'world':<58}{'req/s':>6}{'promoted':>10}{'rolled back':>13}{'held':>8}"
    f"{'seconds p50':>13}{'requests p50':>14}{'p99':>8}  aims"
)


def row(case: Case, found: Outcomes) -> tuple[str, bool]:
    """Return the row of the table, and whether an aim is missed. `requests` counts those of the candidate until the
    decision.
    """
    closed = found.decided != 0
    seconds = np.median(found.seconds)
    middle, most = np.quantile(found.requests[closed], [0.5, 0.99]) if closed.any() else (math.nan, math.nan)
    figures = [
        Figure("wrong rollbacks", found.rolled_back, "", case.wrong),
        Figure("missed", found.promoted, "", case.missed),
        Figure("slowest s", float(found.seconds.max()), "", case.within),
    ]
    told = [f"{one.what} ≤ {one.aim:g} {'MISSED' if one.missed else 'ok'}" for one in figures if one.aim is not None]
    held = float(np.mean(found.decided == 0))
    line = f"{case.what:<58}{case.rate:>6g}{found.promoted:>10.2%}{found.rolled_back:>13.2%}{held:>8.2%}"
    line += f"{seconds:>13.0f}{middle:>14.0f}{most:>8.0f}  {', '.join(told)}"
    return line, any(one.missed for one in figures)


def main() -> int:
    """Print the table. The exit code is 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000, help="rollouts to simulate for each row [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    options = parser.parse_args()
    print(HEAD)
    missed = False
    for case in cases():
        began = time.perf_counter()
        simulation = RolloutSimulation(
            case.world, case.rollout, case.rate, options.rollouts, options.seed, case.attacks
        )
        found = simulation.run(case.longest)
        line, wrong = row(case, found)
        print(f"{line}  ({time.perf_counter() - began:.1f} s)", flush=True)
        missed = missed or wrong
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

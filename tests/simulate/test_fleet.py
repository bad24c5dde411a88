"""Test the simulated fleet: costs and waits calculated by hand, comparisons, and the aim at a small size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from loadtests.simulate.fleet.__main__ import main, verdict
from loadtests.simulate.fleet.arrivals import Arrivals, Traffic, make_arrivals
from loadtests.simulate.fleet.comparison import compare, equal_bill
from loadtests.simulate.fleet.policies import FixedKeepAlive, PlannedKeepAlive
from loadtests.simulate.fleet.simulation import FleetOutcome, FleetSimulation, FleetTimes

TIMES = FleetTimes(service=2.0, cold=30.0, claim=3.0)


def arrivals(*requests: tuple[float, int], horizon: float = 200.0) -> Arrivals:
    times, models = zip(*requests, strict=True) if requests else ((), ())
    return Arrivals(np.array(times, float), np.array(models, np.int64), horizon)


def run(requests: Arrivals, keep: float, members: int = 0) -> FleetOutcome:
    return FleetSimulation(requests, TIMES, FixedKeepAlive(keep, members)).run()


def test_requests_wait_for_a_cold_start_and_the_replica_is_billed_until_it_is_removed() -> None:
    found = run(arrivals((0, 0), (10, 0), (100, 0)), keep=20.0)
    assert found.waits.tolist() == [30.0, 20.0, 30.0]
    assert found.replicas == (32.0 + 20.0) + (132.0 + 20.0 - 100.0)
    assert (found.starts, found.cold, found.members) == (2, 2, 0.0)


def test_a_request_within_the_keep_alive_does_not_wait() -> None:
    found = run(arrivals((0, 0), (50, 0)), keep=20.0)
    assert found.waits.tolist() == [30.0, 0.0]
    assert found.replicas == 52.0 + 20.0


def test_warm_models_are_billed_to_the_end() -> None:
    assert run(arrivals((0, 0)), keep=1_000.0).replicas == 200.0


def test_a_ready_member_is_claimed_and_replaced() -> None:
    found = run(arrivals((0, 0), (40, 1), (50, 2), (71, 3)), keep=0.0, members=1)
    assert found.waits.tolist() == [30.0, 3.0, 30.0, 3.0]
    assert (found.starts, found.cold, found.members) == (4, 2, 200.0)
    assert found.replicas == 32.0 + 5.0 + 32.0 + 5.0


def test_a_shorter_keep_alive_removes_no_replica_in_the_past() -> None:
    class Shrinking(FixedKeepAlive):
        def replan(self, now: float) -> int:
            self.keep = 1_000.0 if now < 100.0 else 10.0
            return 0

    found = FleetSimulation(arrivals((0, 0)), TIMES, Shrinking(1_000.0, interval=50.0)).run()
    assert found.replicas == 100.0


def test_a_fleet_without_requests_costs_only_its_pool() -> None:
    found = run(arrivals(), keep=60.0, members=2)
    assert (found.bill, found.mean_wait, found.quantile(0.99)) == (400.0, 0.0, 0.0)


@pytest.mark.parametrize("variation", [1.0, 4.0])
def test_gaps_have_the_requested_rate_and_variation(variation: float) -> None:
    made = make_arrivals(Traffic(models=1, rate=1.0, variation=variation), 30.0, 1)
    gaps = np.diff(made.times)
    assert gaps.mean() == pytest.approx(1.0, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.1)


def test_shares_follow_zipfs_law() -> None:
    made = make_arrivals(Traffic(models=50, rate=20.0), 1.0, 1)
    counts = np.bincount(made.models, minlength=50)
    assert counts[0] / counts[9] == pytest.approx(10**1.1, rel=0.1)
    assert len(made.times) == pytest.approx(72_000, rel=0.02)
    assert np.all(np.diff(made.times) >= 0.0)


def test_the_same_seed_gives_the_same_run() -> None:
    def once(seed: int) -> float:
        made = make_arrivals(Traffic(models=20), 0.5, seed)
        return FleetSimulation(made, TIMES, PlannedKeepAlive(20, TIMES, 60.0, 10)).run().bill

    assert once(1) == once(1) != once(2)


def test_the_fixed_keep_alive_never_costs_less() -> None:
    made = make_arrivals(Traffic(models=40), 1.0, 1)
    found = compare(made, TIMES, PlannedKeepAlive(40, TIMES, 60.0, 20))
    assert found.alone is not None
    keep, fixed = found.alone
    assert found.ours.bill <= fixed.bill <= 1.01 * found.ours.bill
    assert run(made, keep).bill == fixed.bill


def test_of_two_keep_alives_of_the_same_cost_the_longer_is_found() -> None:
    def bills(shape: Sequence[tuple[float, float]]) -> Callable[[float], FleetOutcome]:
        points = list(zip(*shape, strict=True))
        return lambda keep: FleetOutcome(np.zeros(1), float(np.interp(keep, points[0], points[1])), 0.0, 0, 0)

    falls_and_rises = bills([(0.0, 100.0), (20.0, 50.0), (100.0, 200.0)])
    found = equal_bill(falls_and_rises, 80.0, 100.0)
    assert found is not None
    assert found[0] == pytest.approx(36.0, abs=0.2)
    assert equal_bill(falls_and_rises, 300.0, 100.0) is None


@pytest.mark.parametrize("variation", [1.0, 4.0])
def test_the_policy_halves_the_waits_at_the_same_cost(variation: float) -> None:
    made = make_arrivals(Traffic(models=100, variation=variation), 1.5, 3)
    assert compare(made, TIMES, PlannedKeepAlive(100, TIMES, 60.0, 50)).ratio <= 0.5


def test_an_unknown_ratio_misses_the_aim() -> None:
    assert verdict("Poisson", [0.2, 0.3])[1] is False
    assert verdict("Poisson", [0.2, 0.6])[1] is True
    assert verdict("Poisson", [0.2, float("nan")])[1] is True


def test_the_command_prints_a_line_for_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--hours", "0.5", "--seeds", "1-2", "--models", "40"])
    lines = capsys.readouterr().out.splitlines()
    assert code == any(line.endswith("MISSED") for line in lines)
    assert len(lines) == 1 + 2 * (2 + 1)
    assert lines[3].startswith("Poisson: mean added wait 0.")


def test_an_invalid_seed_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "one"])
    assert "'one' is not a seed (3) or a range of seeds (1-5)" in capsys.readouterr().err

"""Test runs of replicas with engines: waits, costs, and the slots that each policy counts."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.simulate.llm import __main__ as command
from loadtests.simulate.llm import simulation
from loadtests.simulate.llm.engine import Engine, Request, Speed
from loadtests.simulate.llm.policies import POLICIES, Foresight, Setting, active, slots_in_use, weight
from loadtests.simulate.llm.simulation import LlmSimulation
from loadtests.simulate.llm.traffic import Traffic
from loadtests.simulate.scaler import RevisionState
from tests.simulate.workloads import Steps

ROUND = Speed(step=1.0, per_request=0.0, per_cached=0.0, per_prompt=0.0, cache=1_000, chunk=100)


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (simulation, command):
        monkeypatch.setattr(module, "WARM_UP", 0.0)


def traffic(arrivals: list[float], prompt: int = 10, generated: int = 1) -> Traffic:
    count = len(arrivals)
    return Traffic("few", np.array(arrivals), np.full(count, prompt, np.int64), np.full(count, generated, np.int64))


@pytest.mark.usefixtures("_counted")
def test_a_request_waits_for_its_replica_and_its_first_token() -> None:
    run = LlmSimulation(traffic([0.0, 40.0]), Steps((0.0, 1)), active, slots=2, start=10.0, speed=ROUND)
    found = run.play()
    assert found.first_token[0] == found.waits[0] + 1.0
    assert found.waits[0] == pytest.approx(10.0, rel=0.6)
    assert found.waits[1] == 0.0
    assert found.first_token[1] == 1.0
    assert found.replica_seconds == 40.0


@pytest.mark.usefixtures("_counted")
def test_requests_beyond_the_slots_wait_at_the_activator() -> None:
    run = LlmSimulation(traffic([30.0, 30.0], generated=5), Steps((0.0, 1)), active, slots=1, start=1.0, speed=ROUND)
    assert run.play().waits.tolist() == [0.0, 5.0]


def test_the_measures_count_requests_cache_and_weights() -> None:
    engine = Engine(10, ROUND)
    engine.add(Request(0, prompt=700, generated=9, weight=3.0), 0.0)
    engine.add(Request(1, prompt=10, generated=9, weight=0.5), 0.0)
    for _ in range(8):
        engine.finish()
    assert engine.kv_share > 0.7
    assert active(engine) == 2.0
    assert slots_in_use(engine) == 8.0
    assert weight(engine) == 3.5


def test_the_oracle_orders_replicas_one_start_ahead() -> None:
    busy = traffic([100.0 + number / 10 for number in range(200)], prompt=1_000)
    plan = Foresight(busy, Setting(start=20.0), 0.1)
    at = {now: plan.decide_at_tick(RevisionState(now, 1, 1, 0, 0)) for now in (50.0, 75.0, 110.0, 200.0)}
    assert at[50.0] == at[200.0] == 1
    assert at[75.0] == at[110.0] > 1


@pytest.mark.usefixtures("_counted")
@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_answers_every_request_and_repeats_itself(policy: str) -> None:
    generator = np.random.default_rng(3)
    steady = traffic(np.sort(generator.uniform(0.0, 60.0, 300)).tolist(), prompt=500, generated=50)
    first, again = (POLICIES[policy](steady, Setting(slots=8, start=5.0), 4.0) for _ in range(2))
    assert len(first.first_token) == 300
    assert np.isfinite(first.first_token).all()
    assert first.replica_seconds == again.replica_seconds


@pytest.mark.usefixtures("_counted")
def test_the_command_prints_a_table_and_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--traffic",
        "code",
        "--seeds",
        "1",
        "--seconds",
        "60",
        "--policy",
        "requests",
        "--policy",
        "tokens",
        "--target",
        "8",
    ]
    assert command.main(arguments) == 0
    said = capsys.readouterr().out
    assert "code: " in said
    assert said.count("\nrequests ") == said.count("\ntokens ") == 1
    assert "tokens ÷ requests: " in said

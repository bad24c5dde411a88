"""`knodel.ray:Policy` in the real Ray Serve, in a process of its own session."""

from __future__ import annotations

from loadtests.ray_policy.outcome import MOST
from loadtests.ray_policy.session import measure, session_members

LONGEST = 840.0
"""Seconds for Ray's start, 20 s of load, and the removal of all replicas but one: after twelve start times, 10 minutes
at most."""


def test_all_replicas_come_under_load_and_go_after_it() -> None:
    run = measure(["knodel"], LONGEST)

    (outcome,) = run.outcomes
    assert outcome.asked is not None and outcome.asked < 10.0
    assert outcome.full is not None
    assert outcome.back is not None
    assert any("Sleeper: 1->" in line and "requests are queued inside replicas" in line for line in run.log), run.log
    assert any(f"{MOST}->" in line for line in run.log), run.log
    assert session_members(run.session) == []

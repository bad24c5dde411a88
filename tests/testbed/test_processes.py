"""Components are started once, found again, started anew when they die or change, and ended by id."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.errors import TestbedError
from tests.testbed.paths import Paths
from tests.testbed.processes import Component, Processes, end_all, marked
from tests.testbed.waiting import becomes

GRACE = 5.0
SOON = 5.0  # s


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Paths]:
    made = Paths(tmp_path / "state", tmp_path / "cache")
    made.state.mkdir()
    yield made
    end_all(marked(made.state), GRACE)


def sleeper(seconds: int = 600) -> Component:
    return Component("sleeper", ("/bin/sleep", str(seconds)), lambda: True)


def test_a_component_that_runs_is_not_started_again(where: Paths) -> None:
    processes = Processes(where)
    assert processes.ensure(sleeper()) is True
    first = processes.running("sleeper")
    assert Processes(where).ensure(sleeper()) is False
    assert first is not None and processes.running("sleeper") == first


def test_one_that_was_killed_is_started_again(where: Paths) -> None:
    processes = Processes(where)
    processes.ensure(sleeper())
    first = processes.running("sleeper")
    assert first is not None
    end_all([first], GRACE, signal.SIGKILL)
    assert processes.running("sleeper") is None
    assert processes.ensure(sleeper()) is True


def test_one_whose_command_has_changed_is_started_anew(where: Paths) -> None:
    processes = Processes(where)
    processes.ensure(sleeper())
    first = processes.running("sleeper")
    assert processes.ensure(sleeper(601)) is True
    assert processes.running("sleeper") != first
    assert becomes(lambda: len(list(marked(where.state))) == 1, SOON)


def test_one_without_a_record_is_found_and_replaced(where: Paths) -> None:
    processes = Processes(where)
    processes.ensure(sleeper())
    (where.records / "sleeper.json").unlink()
    assert processes.ensure(sleeper()) is True
    second = processes.running("sleeper")
    assert second is not None
    # Linux shows no environment in the first moments of a program.
    assert becomes(lambda: [identity.pid for identity in marked(where.state)] == [second.pid], SOON)


def test_one_that_ends_at_once_is_told_with_its_last_words(where: Paths) -> None:
    component = Component("broken", ("/bin/sh", "-c", "echo no such flag; exit 1"), lambda: False)
    with pytest.raises(TestbedError, match=r"broken ended: no such flag"):
        Processes(where).ensure(component)


def test_one_that_heeds_no_signal_is_killed(where: Paths) -> None:
    deaf = where.state / "deaf"
    script = f"trap '' TERM; touch {deaf}; while :; do sleep 600; done"
    processes = Processes(where)
    processes.ensure(Component("stubborn", ("/bin/sh", "-c", script), deaf.exists))
    end_all(marked(where.state), 0.2)
    assert processes.running("stubborn") is None
    assert list(marked(where.state)) == []

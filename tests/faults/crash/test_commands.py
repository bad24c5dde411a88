"""`knodel deploy` is interrupted or killed at each of its exchanges; given again, it comes to the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.objects import MODEL
from serving.client.errors import INTERRUPTED
from tests.faults.crash.chapters import REST, WITHIN
from tests.faults.crash.crashing import CrashingMachine, crashing, quietly
from tests.faults.crash.ledger import Ledger
from tests.faults.crash.sweep import eventually
from tests.faults.crash.view import View, difference, view_of
from tests.faults.kit.crash import WHENS

COMMAND = (sys.executable, "-m", "tests.faults.crash.command")
NEVER = 0  # no exchange has this number
LIMIT = 60  # s for one command
ENDS = {"SIGINT": INTERRUPTED, "SIGKILL": -signal.SIGKILL}


@pytest.mark.fault("C1")
@pytest.mark.timeout(300)
def test_a_deploy_that_is_ended_at_any_exchange_converges_when_it_is_given_again(tmp_path: Path) -> None:
    with crashing(tmp_path) as here:
        ledger = Ledger(here.folder)
        here.count()
        done = deploy(here, "cmd-000", "SIGKILL", NEVER, "after")
        quietly(here, REST)
        ledger.follow()
        expected = view_of(ledger, "cmd-000")
        exchanges = int(done.stderr.splitlines()[-1])
        assert done.returncode == 0 and exchanges > 2

        number = 0
        for blow, code in ENDS.items():
            for when in WHENS:
                for exchange in range(1, exchanges + 1):
                    number += 1
                    struck = deploy(here, f"cmd-{number:03}", blow, exchange, when)
                    assert struck.returncode == code, struck.stderr
                    assert "Traceback" not in struck.stderr
                    assert deploy(here, f"cmd-{number:03}", blow, NEVER, when).returncode == 0
                    comes_to(expected, ledger, f"cmd-{number:03}")
                    here.client().delete(MODEL, f"cmd-{number:03}", "default")

        eventually(lambda: has_no_orphan(ledger), WITHIN, "objects without an owner are left")
        assert ledger.faults == []


def deploy(here: CrashingMachine, name: str, blow: str, exchange: int, when: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whichever that is."""
    verb = ("deploy", name, "--uri", here.artifact("double"), "--version", "1", "--min", "1", "--max", "1")
    return subprocess.run(
        [*COMMAND, blow, str(exchange), when, *verb],
        env=here.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def comes_to(expected: View, ledger: Ledger, name: str) -> None:
    """Return once the Model's objects are these."""
    found: View = {}

    def same() -> bool:
        nonlocal found
        ledger.follow()
        found = view_of(ledger, name)
        return found == expected

    try:
        eventually(same, WITHIN, name)
    except AssertionError:
        raise AssertionError(f"{name}\n{difference(expected, found)}") from None


def has_no_orphan(ledger: Ledger) -> bool:
    """Whether each object that has an owner has a living one."""
    ledger.follow()
    return not ledger.orphans()

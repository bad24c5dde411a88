"""Every command of docs/develop.md is run in order, and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.machine import Machine, machine
from tests.support.dev import WITHIN
from tests.support.guide import Session, sessions
from tests.testbed.waiting import becomes

PAGE = Path(__file__).parents[2] / "docs" / "develop.md"
SESSIONS = list(sessions(PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Provide a folder for the project and a platform that the page starts and stops."""
    with machine(tmp_path_factory.mktemp("page")) as made:
        made.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KNODEL_GATEWAY_PORT": str(made.port), "KNODEL_CONTROL_PORT": str(made.control),
        }  # fmt: skip
        yield made


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.heading)
def test_a_session_prints_what_the_page_shows(here: Machine, session: Session) -> None:
    servers = []
    try:
        for step in session.steps:
            command = step.command.replace("8080", str(here.port))
            if step.serves:
                log = here.folder / "dev.log"
                bash = ["bash", "-c", f"exec {command} --port {here.port} > {log} 2>&1"]
                servers.append(subprocess.Popen(bash, cwd=here.folder, env=here.environment))
                assert becomes(lambda: log.exists() and "answers 200" in log.read_text(), WITHIN), log.read_text()  # noqa: B023
                continue
            done = subprocess.run(
                ["bash", "-c", command], cwd=here.folder, env=here.environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert not step.expected.strip() or step.agrees(done.stdout), f"{command}\n{done.stdout}"
    finally:
        for server in servers:
            server.terminate()
            assert server.wait(WITHIN) == 0


def test_the_traceback_of_the_page_is_what_is_shown(here: Machine) -> None:
    shown = (here.folder / "dev.log").read_text()
    terminal = PAGE.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]

    for line in re.findall(r"^  .+$", terminal, re.MULTILINE):
        assert line.replace("/home/me", str(here.folder)) in shown, shown

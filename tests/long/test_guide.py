"""Every command of docs/server.md is run, and prints what the guide says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.long.neighbours import Neighbours, neighbours
from tests.long.served import ENDS_WITHIN, STARTS_WITHIN, is_ready
from tests.support.guide import GUIDE, Session, Step, files, sessions
from tests.support.ports import free_ports
from tests.testbed.waiting import becomes

TEXT = GUIDE.read_text()
SESSIONS = list(sessions(TEXT))
MODEL = "iris.skops"
"""The first session trains it."""
WITH_NEIGHBOURS = ("Where models come from", "Observability")
"""Headings of the last sessions, whose commands talk to others than the server."""
PORTS = ("8080", "8081", "9095")
"""As the guide has them: HTTP, gRPC, management."""
EXPORT = "export "


class Place:
    """A folder with the guide's files, and free ports in the place of the guide's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        http, _, management = self.ports.values()
        path = f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}"
        self.environment: Mapping[str, str] = {
            **os.environ, "PATH": path, "PORT": http, "MANAGEMENT_PORT": management,
            "KNODEL_CACHE": str(folder / "cache"), "KNODEL_TERMINATION_LOG": str(folder / "why"),
        }  # fmt: skip
        for name, content in files(TEXT):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)

    def run(self, step: Step, exports: str) -> str:
        """What a command prints, behind commands that set variables. Raises AssertionError when it fails."""
        done = subprocess.run(
            self._bash(step, exports), cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{step.command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self, step: Step, exports: str) -> Iterator[None]:
        """A server that is ready, ended by SIGTERM."""
        process = subprocess.Popen(
            self._bash(step, exports), cwd=self.folder, env=self.environment, start_new_session=True
        )
        try:
            assert becomes(lambda: is_ready(int(self.ports["8080"])) or process.poll() is not None, STARTS_WITHIN)
            assert process.poll() is None, step.command
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(ENDS_WITHIN)

    def _bash(self, step: Step, exports: str) -> list[str]:
        command = step.command.replace("knodel serve ", f"knodel serve --port {PORTS[0]} ")
        script = f"{exports}exec {command}" if step.serves else exports + command
        return ["bash", "-c", re.sub("|".join(self.ports), lambda found: self.ports[found[0]], script)]


def of(headings: Sequence[str], among: bool) -> list[Session]:
    """The sessions under these headings, or under all others."""
    return [session for session in SESSIONS if (session.heading in headings) == among]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One for the whole guide: later sessions use what earlier ones made."""
    return Place(tmp_path_factory.mktemp("guide"))


@pytest.mark.parametrize("session", of(WITH_NEIGHBOURS, False), ids=lambda session: session.heading)
def test_a_session_prints_what_the_guide_says(place: Place, session: Session) -> None:
    play(place, session)


@pytest.fixture(scope="module")
def others(place: Place) -> Iterator[Neighbours]:
    """Beside the place; made when the model is there."""
    with neighbours(MODEL, (place.folder / MODEL).read_bytes()) as running:
        place.ports |= running.ports
        yield running


@pytest.mark.parametrize("session", of(WITH_NEIGHBOURS, True), ids=lambda session: session.heading)
def test_a_session_with_neighbours_prints_what_the_guide_says(
    place: Place, others: Neighbours, session: Session
) -> None:
    play(place, session)


def test_what_the_guide_sends_to_collectors_has_come(others: Neighbours) -> None:
    assert [post.headers["ce-type"].rpartition(".")[2] for post in others.events.posts] == ["request", "response"]
    assert {post.path for post in others.traces.posts} == {"/v1/metrics", "/v1/traces"}


def play(place: Place, session: Session) -> None:
    """Run the session's commands. Raises AssertionError where one prints something else."""
    exports = ""
    with ExitStack() as servers:
        for step in session.steps:
            if step.command.startswith(EXPORT):
                exports += f"{step.command}\n"
            elif step.serves:
                servers.enter_context(place.serving(step, exports))
            else:
                printed = place.run(step, exports)
                assert step.agrees(printed), f"{step.command}\n{printed}"

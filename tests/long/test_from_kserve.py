"""Type every command of docs/from-kserve.md, in order, into one shell with a platform of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.guide import files, sessions
from tests.support.ports import free_ports
from tests.support.shell import Shell

PAGE = Path(__file__).parents[2] / "docs" / "from-kserve.md"
GATEWAY, WEB = "8080", "9000"
"""The ports of the page."""
WITHIN = 120.0  # s


@pytest.mark.timeout(600)
def test_every_command_of_the_page_works_as_it_stands_there(tmp_path: Path) -> None:
    gateway, web, *others = map(str, free_ports(4))
    text = PAGE.read_text().replace(GATEWAY, gateway).replace(WEB, web)
    for name, content in files(text):
        (tmp_path / name).write_text(content)
    environment = {
        **os.environ, "PATH": f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}",
        "KNODEL_STATE": str(tmp_path / "state"),
        "KNODEL_GATEWAY_PORT": gateway, "KNODEL_CONTROL_PORT": others[0], "KNODEL_CONTROL_TLS_PORT": others[1],
    }  # fmt: skip
    with Shell(tmp_path, environment) as shell:
        try:
            for step in (step for session in sessions(text) for step in session.steps):
                printed = shell.run(step.command, WITHIN)
                assert not step.expected.strip() or step.agrees(printed), f"{step.command}\n{printed}"
        finally:
            shell.run("knodel down", WITHIN)

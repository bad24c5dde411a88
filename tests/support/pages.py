"""Type the commands of a page of the documentation into one shell with a platform of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.guide import files, sessions
from tests.support.ports import free_ports
from tests.support.shell import Shell

GATEWAY, EVENTS = "8080", "8081"
"""The ports of the platform, as pages have them."""
WITHIN = 300.0  # s for one command


def type_page(page: Path, folder: Path, *more_ports: str, before: Iterable[str] = ()) -> None:
    """Write the files of the page into the folder, and run its commands there in order. Stop the platform at the end.

    The commands `before` run first. The home folder is `folder`, with the state folder in its usual place. The ports
    of the platform, and `more_ports` of the page, are replaced by free ones. Raises AssertionError for a command that
    fails, or prints other than the page shows.
    """
    named = (GATEWAY, EVENTS, *more_ports)
    *found, tls = map(str, free_ports(len(named) + 1))
    ports = dict(zip(named, found, strict=True))

    def with_ports(text: str) -> str:
        return re.sub(rf"\b({'|'.join(ports)})\b", lambda port: ports[port[0]], text)

    text = with_ports(page.read_text(encoding="utf-8"))
    for name, content in files(text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    environment = {
        **os.environ, "PATH": f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}",
        "HOME": str(folder), "KNODEL_STATE": str(folder / ".local" / "state" / "knodel"),
        "KNODEL_GATEWAY_PORT": ports[GATEWAY], "KNODEL_CONTROL_PORT": ports[EVENTS], "KNODEL_CONTROL_TLS_PORT": tls,
    }  # fmt: skip
    try:
        with Shell(folder, environment) as shell:
            for command in before:
                shell.run(with_ports(command), WITHIN)
            for step in (step for session in sessions(text) for step in session.steps):
                printed = shell.run(step.command, WITHIN)
                assert not step.expected.strip() or step.agrees(printed), f"{step.command}\n{printed}"
    finally:
        subprocess.run(["knodel", "down", "--force"], env=environment, capture_output=True, check=False)

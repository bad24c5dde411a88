"""Test a platform whose state folder becomes read-only: commands find it, it serves, and it can be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.machine import Machine, machine
from tests.support.mounts import MayNotMount, in_mount_namespace, make_read_only, make_writable

LEFT = ("platform.json", "gateway/envoy.pid.json", "activator/activator.pid.json")
"""Files of an ended platform that a disk which was writable would not have."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    """Yield a machine on which nothing runs yet."""
    with machine(tmp_path) as made:
        yield made


def on_read_only_disk(here: Machine, *, killed: bool) -> None:
    """Start a platform and stop it on a read-only disk. With `killed`, its control plane is killed before."""
    here.up()
    here.run("deploy", "double", "--uri", here.artifact("double"))
    make_read_only(here.state)

    assert "double" in here.run("list")
    assert here.ask("double") == 2.0
    if killed:
        here.kill()
    ended = here.complete("down")
    again = here.complete("down")
    refused = here.up(code=1)

    assert (ended.returncode, again.returncode) == (0, 0), ended.stderr + again.stderr
    assert here.processes() == []
    assert ended.stdout.startswith(f"the platform on {here.state} has ended (")
    assert again.stdout == f"no platform runs on {here.state}: nothing to stop\n"
    for note in (ended.stderr, again.stderr):
        assert "read-only disk" in note and all(name in note for name in LEFT)
        assert len(note.splitlines()) == 1
    assert "Read-only file system" in refused
    assert "Traceback" not in (here.state / "platform.log").read_text()

    make_writable(here.state)
    here.up()
    assert here.ask("double") == 2.0
    done = here.complete("down")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any((here.state / name).exists() for name in LEFT)


@pytest.mark.parametrize("killed", [False, True])
def test_a_platform_on_a_read_only_disk_is_found_and_can_be_stopped(here: Machine, killed: bool) -> None:
    try:
        in_mount_namespace(lambda: on_read_only_disk(here, killed=killed))
    except MayNotMount as error:
        pytest.skip(f"no read-only disk here: {error}")

"""A machine that cannot run the testbed says so in one sentence, with an exit code of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.testbed import commands, golang, machine
from tests.testbed.__main__ import FAILED, LACKS, main
from tests.testbed.errors import MachineLacks
from tests.testbed.paths import Paths


def test_capabilities_are_read_out_of_the_status_of_a_process() -> None:
    status = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t0000000000001000\n"
    assert machine.effective_capabilities(status) == 1 << 12
    assert machine.effective_capabilities("Name:\tpython\n") == 0


def test_without_root_the_sentence_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["up"]) == LACKS
    assert capsys.readouterr().err.splitlines() == [
        "testbed: the testbed needs root: networks, mounts and cgroups are made; run it as root"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_made_and_no_more_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where = Paths(tmp_path / "state", tmp_path / "cache")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    monkeypatch.setattr(golang, "check", lambda: None)
    with pytest.raises(MachineLacks, match=r"8 GiB of disk are needed for .*: 1\.0 are free"):
        machine.check_build(where)
    where.archives.mkdir(parents=True)
    machine.check_build(where)


def test_without_go_the_sentence_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(commands, "find", lambda program: None)
    with pytest.raises(MachineLacks, match="has no Go: install"):
        golang.run("version")


def test_go_finds_its_caches_also_where_no_variable_tells_the_home() -> None:
    assert golang.environment({})["HOME"] == "/root"
    own = {"HOME": "/home/a", "HTTPS_PROXY": "p"}
    assert golang.environment(own).items() >= own.items()


def test_programs_of_administrators_are_found_whatever_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert commands.environment()["PATH"] == "/nowhere:/usr/sbin:/sbin"


@pytest.mark.parametrize("arguments", [["restart", "etcd"], ["images"]])
def test_what_needs_a_testbed_names_the_command_that_brings_one_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(arguments) == FAILED
    assert "`python -m tests.testbed up` brings one up" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_where_no_testbed_is_there_is_nothing_to_take_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["down"]) == 0

"""A machine that cannot run the testbed says so in one sentence, with an exit code of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.testbed import machine
from tests.testbed.__main__ import LACKS, main


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

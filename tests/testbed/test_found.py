"""Kernel settings are raised, not lowered, and put back as they were found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import found
from tests.testbed.paths import Paths

LOW, HIGH = "fs/inotify/max_user_instances", "fs/inotify/max_user_watches"


def test_a_setting_that_is_lower_is_raised_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fs" / "inotify").mkdir(parents=True)
    (tmp_path / LOW).write_text("128\n")
    (tmp_path / HIGH).write_text("1048576\n")
    monkeypatch.setattr(found, "_SYSCTL", tmp_path)
    monkeypatch.setattr(found, "SETTINGS", {LOW: 8192, HIGH: 524288})
    monkeypatch.setattr(found, "FOLDERS", ())
    where = Paths(tmp_path / "state", tmp_path / "cache")
    found.remember(where)
    found.apply_settings()
    assert [(tmp_path / name).read_text().strip() for name in (LOW, HIGH)] == ["8192", "1048576"]
    found.restore(where)
    assert [(tmp_path / name).read_text().strip() for name in (LOW, HIGH)] == ["128", "1048576"]

"""The state folder on a full disk, and after a writer that was interrupted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from serving.types.settings.state import StateError, full_disk_message, report_full_disk, write_private


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_in_one_line_with_what_helps(tmp_path: Path, number: int) -> None:
    with pytest.raises(StateError, match=f"{tmp_path} is full: make room"), report_full_disk(tmp_path):
        raise OSError(number, "no room")


def test_what_has_another_cause_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), report_full_disk(tmp_path):
        raise PermissionError(errno.EACCES, "not yours")


def test_a_disk_with_room_is_not_full(tmp_path: Path) -> None:
    assert full_disk_message(tmp_path) == ""


@pytest.mark.fault("C3")
def test_a_private_file_is_its_owners_alone_whatever_it_was_before(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("open to all")
    path.chmod(0o644)

    write_private(path, b"secret")

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o600)
    assert [found.name for found in tmp_path.iterdir()] == ["token"]


@pytest.mark.fault("C3")
@pytest.mark.parametrize("step", ["fchmod", "fsync"])
def test_a_private_file_is_the_former_one_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "token"
    write_private(path, b"former")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="no room"):
        write_private(path, b"a new one, of which a part may be on the disk")
    monkeypatch.undo()

    assert path.read_bytes() == b"former"
    write_private(path, b"later")
    assert path.read_bytes() == b"later"

"""The state folder on a disk that is full."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from serving.apis.state import StateError, full_disk, told_when_full


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_in_one_line_with_what_helps(tmp_path: Path, number: int) -> None:
    with pytest.raises(StateError, match=f"{tmp_path} is full: make room"), told_when_full(tmp_path):
        raise OSError(number, "no room")


def test_what_has_another_cause_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), told_when_full(tmp_path):
        raise PermissionError(errno.EACCES, "not yours")


def test_a_disk_with_room_is_not_full(tmp_path: Path) -> None:
    assert full_disk(tmp_path) == ""

"""The user behind a connection of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusters.base.errors import Forbidden
from serving.dashboard.access import LocalAccess, user_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = " 0: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid:5d}        0 1 1 0 20 4 30 10 -1\n"
V4, V6 = "0100007F", "00000000000000000000000001000000"


def table(*rows: tuple[str, str, int]) -> str:
    return HEAD + "".join(ROW.format(local=local, remote=remote, uid=uid) for local, remote, uid in rows)


def test_the_row_of_the_client_counts_not_that_of_the_server() -> None:
    text = table((f"{V4}:1F91", f"{V4}:C350", 0), (f"{V4}:C350", f"{V4}:1F91", 1234))
    assert user_of(text, 50_000, 8081) == 1234


def test_a_row_of_another_address_does_not_count() -> None:
    assert user_of(table(("0200000A:C350", "0200000A:1F91", 1234)), 50_000, 8081) is None
    assert user_of(table((f"{V6}:C350", f"{V6}:1F91", 7)), 50_000, 8081) == 7
    assert user_of(table(("0000000000000000FFFF00000100007F:C350", f"{V6}:1F91", 7)), 50_000, 8081) == 7


@pytest.mark.parametrize(("uid", "good"), [(os.getuid(), True), (0, True), (os.getuid() + 1, False)])
def test_only_the_own_user_and_root_may_connect(tmp_path: Path, uid: int, good: bool) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(table((f"{V4}:C350", f"{V4}:1F91", uid)))
    access = LocalAccess(tmp_path, tmp_path)
    scope = {"client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 8081)}
    if good:
        access.check_peer(scope)
        return
    with pytest.raises(Forbidden, match="another user's"):
        access.check_peer(scope)


def test_a_connection_from_elsewhere_has_no_row(tmp_path: Path) -> None:
    LocalAccess(tmp_path, tmp_path).check_peer({"client": ("10.0.0.2", 50_000), "server": ("10.0.0.1", 8081)})

"""Tokens of members."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from autoscaler.warmpool.claims.keys import BadPoolKey, PoolKey
from clusters.base.objects import Key

KEY = b"0123456789abcdef0123456789abcdef"
MEMBER = Key("blue", "small-0001")


def test_the_token_is_the_hmac_of_the_pods_name_and_the_member_is_told_its_hash() -> None:
    token = PoolKey(KEY).token_for(MEMBER)
    assert token == hmac.new(KEY, b"blue/small-0001", hashlib.sha256).hexdigest()
    assert PoolKey(KEY).sha256_for(MEMBER) == hashlib.sha256(token.encode()).hexdigest()
    for other in (Key("blue", "small-0002"), Key("green", "small-0001")):
        assert PoolKey(KEY).token_for(other) != token


def test_processes_with_the_same_file_make_the_same_tokens_whether_it_ends_with_a_newline_or_not(
    tmp_path: Path,
) -> None:
    plain, ended = tmp_path / "plain", tmp_path / "ended"
    plain.write_bytes(KEY)
    ended.write_bytes(KEY + b"\n")
    assert PoolKey.from_file(plain).token_for(MEMBER) == PoolKey.from_file(ended).token_for(MEMBER)


def test_a_random_key_is_of_one_process_alone() -> None:
    assert PoolKey.random().token_for(MEMBER) != PoolKey.random().token_for(MEMBER)


def test_a_key_does_not_show_in_logs() -> None:
    assert "0123" not in repr(PoolKey(KEY))


def test_a_file_that_is_missing_or_too_short_is_refused_with_its_name(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"secret\n")
    with pytest.raises(BadPoolKey, match=r"short: 6 bytes: at least 16"):
        PoolKey.from_file(short)
    with pytest.raises(BadPoolKey, match=r"none: cannot read the file: No such file"):
        PoolKey.from_file(tmp_path / "none")

"""Layers: the same input always the same bytes, made once, found by content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from tests.testbed.errors import TestbedError
from tests.testbed.layers import PLAIN, LayerStore, Packing
from tests.testbed.trees import REMEMBERED_SIZE, FileDigests, Tree, data, folder, link, stored, write_tar


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "layers", PLAIN)


def packed(tree: Tree) -> bytes:
    buffer = io.BytesIO()
    write_tar(tree, buffer)
    return buffer.getvalue()


def test_the_order_and_the_times_of_the_input_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("x")
    first = packed({"a/b": stored(tmp_path / "program"), "c": link("a/b")})
    os.utime(tmp_path / "program", (1, 1))
    assert packed({"c": link("a/b"), "a/b": stored(tmp_path / "program")}) == first


def test_the_umask_does_not_show_but_whether_a_file_is_a_program_does(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0o600)
    assert stored(tmp_path / "file").mode == 0o644
    (tmp_path / "file").chmod(0o700)
    assert stored(tmp_path / "file").mode == 0o755


def test_everything_belongs_to_root_at_the_epoch_and_has_its_folders_above() -> None:
    with tarfile.open(fileobj=io.BytesIO(packed({"usr/bin/x": data("x", 0o755), "tmp": folder(0o1777)}))) as tar:
        members = {member.name: member for member in tar}
    assert list(members) == ["tmp", "usr", "usr/bin", "usr/bin/x"]
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 0)}
    assert members["usr/bin"].isdir()
    assert members["tmp"].mode == 0o1777


def test_a_layer_is_made_once_per_content(store: LayerStore, tmp_path: Path) -> None:
    made = store.layer({"x": data("x")})
    os.utime(made.path, (1, 1))
    assert LayerStore(tmp_path / "layers", PLAIN).layer({"x": data("x")}) == made
    assert made.path.stat().st_mtime == 1
    assert store.layer({"x": data("y")}).digest != made.digest


def test_a_packed_layer_is_known_by_its_own_digest_and_by_that_of_the_tar_in_it(tmp_path: Path) -> None:
    tree = {"x": data("x" * 1000)}
    plain = LayerStore(tmp_path / "layers", PLAIN).layer(tree)
    zipped = LayerStore(tmp_path / "layers", Packing("layer.tar+gzip", ("gzip", "-1", "-n", "-c"))).layer(tree)
    assert zipped.diff_id == plain.diff_id == plain.digest != zipped.digest
    assert zipped.size < plain.size
    assert f"sha256:{hashlib.sha256(zipped.path.read_bytes()).hexdigest()}" == zipped.digest
    assert gzip.decompress(zipped.path.read_bytes()) == plain.path.read_bytes()


def test_a_packer_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no-such-packer could not pack"):
        LayerStore(tmp_path, Packing("layer.tar+none", ("no-such-packer",))).layer({"x": data("x")})


def test_a_change_of_a_file_makes_another_layer(store: LayerStore, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("a = 1")
    before = store.layer({"m": stored(module)})
    module.write_text("a = 2")
    assert store.layer({"m": stored(module)}).digest != before.digest


def test_what_a_run_did_not_ask_for_is_removed(store: LayerStore, tmp_path: Path) -> None:
    old = store.layer({"x": data("old")})
    later = LayerStore(tmp_path / "layers", PLAIN)
    new = later.layer({"x": data("new")})
    later.prune()
    assert not old.path.exists()
    assert later.layer({"x": data("new")}) == new
    assert len(list((tmp_path / "layers").glob("*.blob"))) == 1


def test_the_digest_of_a_large_file_is_remembered_until_it_changes(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\0" * REMEMBERED_SIZE)
    digests = FileDigests(tmp_path / "digests.json")
    first = digests.of(large)
    digests.save()
    seen = large.stat()
    large.write_bytes(b"\1" * REMEMBERED_SIZE)
    os.utime(large, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # as if nobody had written
    assert FileDigests(tmp_path / "digests.json").of(large) == first
    os.utime(large, ns=(1, 1))
    assert FileDigests(tmp_path / "digests.json").of(large) != first

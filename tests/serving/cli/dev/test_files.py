"""Saves are seen, whichever way an editor writes; bursts are one; files of editors and tools are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serving.cli.dev import files
from serving.cli.dev.code import detected_format, model_path, sets_environment
from serving.cli.dev.files import Changes, Settling, TooManyFiles, changes, is_ignored, pause_after, scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a model's folder with two files."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "model.py").write_text("first")
    (tmp_path / "sub" / "weights.txt").write_text("1")
    return tmp_path


def overwrite(folder: Path) -> None:
    (folder / "model.py").write_text("later")


def rename(folder: Path) -> None:
    (folder / "model.py.new").write_text("first")
    (folder / "model.py.new").replace(folder / "model.py")


def delete(folder: Path) -> None:
    (folder / "sub" / "weights.txt").unlink()


def add(folder: Path) -> None:
    (folder / "sub" / "more.txt").write_text("")


def change_what_a_link_names(folder: Path) -> None:
    (folder / "sub" / "weights.txt").write_text("22")


@pytest.mark.parametrize(
    ("save", "found"),
    [
        (overwrite, Changes(changed=("model.py",))),
        (rename, Changes(changed=("model.py",))),
        (delete, Changes(removed=("sub/weights.txt",))),
        (add, Changes(added=("sub/more.txt",))),
        (change_what_a_link_names, Changes(changed=("link.txt", "sub/weights.txt"))),
    ],
)
def test_every_kind_of_save_is_seen(folder: Path, save: Callable[[Path], None], found: Changes) -> None:
    if len(found.changed) > 1:
        (folder / "link.txt").symlink_to(folder / "sub" / "weights.txt")
    before = scan(folder)
    save(folder)

    assert changes(before, scan(folder)) == found


def test_one_file_is_watched_and_may_be_absent(folder: Path) -> None:
    assert list(scan(folder / "model.py")) == ["model.py"]
    assert scan(folder / "absent") == {}


def test_a_broken_link_and_a_circle_of_links_are_no_files(folder: Path) -> None:
    (folder / "broken").symlink_to("absent")
    (folder / "circle").symlink_to(folder)

    assert set(scan(folder)) == {"model.py", "sub/weights.txt"}


def test_a_folder_with_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 1)

    with pytest.raises(TooManyFiles, match="more than 1 files: name the model's own folder, or use --ignore"):
        scan(folder)
    assert list(scan(folder, ["sub"])) == ["model.py"]


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        (".git", True), ("a/.hidden", True), ("__pycache__", True), ("model.py~", True), (".model.py.swp", True),
        ("4913", True), ("run.log", True), ("sub/run.log", True), ("data", True), ("model.py", False),
        ("sub/data.txt", False),
    ],
)  # fmt: skip
def test_files_of_tools_and_of_patterns_are_ignored(name: str, ignored: bool) -> None:
    assert is_ignored(name, ["*.log", "data/"]) is ignored


def test_a_burst_of_saves_is_one_change() -> None:
    one, two, three = ({"model.py": (number, 1, 1)} for number in range(3))
    settling = Settling(one)
    seen = [settling.observe(marks) for marks in (one, two, three, three, three)]

    assert seen == [None, None, None, Changes(changed=("model.py",)), None]


def test_a_file_that_is_deleted_and_back_at_once_is_changed_only_if_it_differs() -> None:
    before, after = {"m": (1, 1, 1)}, {"m": (2, 1, 2)}
    settling = Settling(before)

    assert [settling.observe(marks) for marks in ({}, before, before)] == [None, None, None]
    assert [settling.observe(marks) for marks in ({}, after, after)] == [None, None, Changes(changed=("m",))]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Changes(changed=("a",)), "a changed"),
        (Changes(changed=("a",), added=("b", "c"), removed=("d",)), "a changed, b and c added, d removed"),
        (Changes(changed=tuple("abcdef")), "a, b, c, d and 2 more files changed"),
    ],
)
def test_changes_are_described(found: Changes, words: str) -> None:
    assert str(found) == words


def test_scans_take_a_small_share_of_one_core() -> None:
    assert pause_after(0.0001, settling=False) == files.FASTEST
    assert pause_after(0.0001, settling=True) == files.SETTLED
    assert pause_after(0.1, settling=False) == pytest.approx(0.1 / files.SHARE)
    assert pause_after(0.1, settling=True) == 0.1


def test_a_folder_with_a_class_is_python_even_beside_weights(folder: Path) -> None:
    (folder / "weights.onnx").write_bytes(b"")

    assert (detected_format(folder), detected_format(folder / "sub")) == ("python", "")
    assert model_path(folder / "model.py") == folder
    assert model_path(folder / "weights.onnx") == folder / "weights.onnx"


@pytest.mark.parametrize(("code", "sets"), [("import os\nos.environ['A'] = '1'", True), ("import numpy", False)])
def test_code_that_may_set_variables_is_found(folder: Path, code: str, sets: bool) -> None:
    (folder / "sub" / "helper.py").write_text(code)

    assert sets_environment(folder) is sets

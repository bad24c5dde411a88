"""A version is its bytes: what was deployed is what a rollback serves, whatever became of the source."""

from __future__ import annotations

from pathlib import Path

from serving.storage.kept import size_of
from tests.platform.machine import Machine, machine
from tests.support import models


def overwrite(source: Path, with_bytes_of: Path) -> None:
    """Write in place, as a training job does: the file stays the same, its bytes do not."""
    with source.open("r+b") as file:
        file.write(with_bytes_of.read_bytes())
        file.truncate()


def revisions(here: Machine, name: str) -> list[str]:
    """The revisions of a Model's history, oldest first."""
    return [entry["revision"] for entry in here.model(name)["status"]["history"]]


def test_a_rollback_serves_the_old_bytes_after_the_source_was_overwritten_and_deleted(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        source = tmp_path / "model.onnx"
        double, triple = (models.write(tmp_path / name, name) for name in ("double", "triple"))
        source.write_bytes(double.read_bytes())
        here.run("deploy", "m", "--uri", str(source))
        assert here.ask("m") == 2.0

        again = here.run("deploy", "m", "--uri", str(source))
        assert "unchanged" in again
        assert revisions(here, "m") == ["m-00001"]

        overwrite(source, triple)
        assert "unchanged" not in here.run("deploy", "m", "--uri", str(source))
        assert here.ask("m") == 3.0
        assert revisions(here, "m") == ["m-00001", "m-00002"]

        source.unlink()
        here.run("rollback", "m")
        assert here.ask("m") == 2.0
        here.run("down")
        here.up()
        here.run("wait", "m")
        assert here.ask("m") == 2.0  # a new replica, long after its file was deleted
        here.run("rollback", "m", "--to", "m-00002")
        assert here.ask("m") == 3.0


def test_a_missing_path_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        for more in ([], ["--dry-run"]):
            said = here.run("deploy", "m", "--uri", str(tmp_path / "no.onnx"), *more, code=2)
            assert "no.onnx: cannot be opened (No such file or directory)" in said
        assert here.run("get", "m", code=3)
        assert size_of(here.state / "kept") == 0

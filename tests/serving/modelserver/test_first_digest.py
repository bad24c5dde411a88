"""The digest that a replica must match: the platform's record, else that of its container; none without a platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.first_digest import first_digest, remember
from serving.modelserver.base.options import parse_options

FIRST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")
WORDS = ["--name", "m", "--storage-uri", "https://models.test/m.onnx"]


def digest_of(tmp_path: Path, *words: str, **more: str) -> str:
    """Return the digest with which a server of revision m-00001 starts."""
    environ = {"K_REVISION": "m-00001", "KNODEL_DIGESTS": str(tmp_path / "record"), "TMPDIR": str(tmp_path), **more}
    assignment = parse_options([*WORDS, *words], environ).assignment
    assert assignment is not None
    return assignment.digest


@pytest.fixture(autouse=True)
def record(tmp_path: Path) -> Path:
    (tmp_path / "record").mkdir()
    return tmp_path / "record" / "m-00001"


def test_nothing_is_known_before_the_first_replica_has_loaded(tmp_path: Path) -> None:
    assert digest_of(tmp_path) == ""


def test_the_record_of_its_own_revision_holds(tmp_path: Path, record: Path) -> None:
    record.write_text(FIRST)
    record.with_name("m-00002").write_text(OTHER)
    assert digest_of(tmp_path) == FIRST
    assert digest_of(tmp_path, K_REVISION="m-00002") == OTHER


def test_a_container_that_restarts_is_held_to_what_it_loaded_until_there_is_a_record(
    tmp_path: Path, record: Path
) -> None:
    remember(tmp_path, OTHER)
    assert digest_of(tmp_path) == OTHER
    record.write_text(FIRST)
    assert digest_of(tmp_path) == FIRST


def test_a_promised_digest_goes_first_and_without_a_platform_there_is_no_record(tmp_path: Path, record: Path) -> None:
    record.write_text(FIRST)
    assert digest_of(tmp_path, "--digest", OTHER) == OTHER
    assert first_digest({}, "m-00001", tmp_path) == ""


def test_a_record_that_is_no_digest_is_refused(tmp_path: Path, record: Path) -> None:
    record.write_text("sha256:evil")
    with pytest.raises(BadOptions, match="cannot use the recorded digest of m-00001"):
        digest_of(tmp_path)

"""`knodel deploy PATH` on a real cluster: this machine's files go to a store, and Pods load them from there.

The store is Google Cloud Storage as far as uploads and replicas use it, since the image of the server needs no library
to read public objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.test_command import Shell, knodel
from tests.serving.storage.uploads.google import GoogleStore, running_store
from tests.support import models
from tests.support.artifacts import own_address
from tests.support.kubernetes import KubeTarget

__all__ = ["knodel"]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def store(target: KubeTarget) -> Iterator[GoogleStore]:
    """A public store that Pods reach."""
    yield from running_store(own_address(target.server), public=True)


@pytest.fixture
def uploads(knodel: Shell, store: GoogleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The command on a cluster whose settings name the store, and a Secret with the store's address for replicas."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    former = yaml.safe_load(knodel("config").out)["artifacts"]
    knodel("secret", "store", "--env", "STORAGE_EMULATOR_HOST")
    knodel("config", "--set", "artifacts.prefix=gs://models/team", "--set", "artifacts.secret=store")
    yield knodel
    knodel("config", *(word for key, value in former.items() for word in ("--set", f"artifacts.{key}={value}")))


def test_a_local_file_is_uploaded_once_and_answers(uploads: Shell, store: GoogleStore, tmp_path: Path) -> None:
    double, triple = (models.write(tmp_path, name) for name in ("double", "triple"))

    uploads("deploy", "magika", "--uri", str(triple))
    model = uploads.model()
    assert model["spec"]["storageUri"].startswith("gs://models/team/sha256/")
    assert model["spec"]["storage"] == {"secretRef": {"name": "store"}}
    assert uploads.answer() == 63.0
    assert store.received == triple.stat().st_size

    assert "unchanged" in uploads("deploy", "magika", "--uri", str(triple)).out
    assert store.received == triple.stat().st_size

    uploads("deploy", "magika", "--uri", str(double))
    assert uploads.answer() == 42.0
    uploads("rollback", "magika")
    assert uploads.answer() == 63.0


def test_another_file_under_the_key_is_not_served(uploads: Shell, store: GoogleStore, tmp_path: Path) -> None:
    triple = models.write(tmp_path, "triple")
    uploads("deploy", "magika", "--uri", str(triple), "--version", "first")
    key = uploads.model()["spec"]["storageUri"].removeprefix("gs://models/")
    content = bytearray(store.objects[key])
    content[-1] ^= 1
    store.objects[key] = bytes(content)

    failed = uploads("deploy", "magika", "--version", "second", code=1)

    assert "digest" in failed.err
    assert uploads.answer() == 63.0

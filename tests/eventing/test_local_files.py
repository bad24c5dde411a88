"""Local model files in events: only files below the `storagePrefixes` are kept and served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.objects import EVENT_SOURCE
from eventing.objects.apis import ModelChange
from serving.platform import event_files
from serving.platform.event_files import EventFiles
from serving.storage import kept
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.sources.local import LocalPath, restrict_to
from tests.eventing.world import EventWorld, event_source, event_spec, event_world

LIMIT = 1 << 20


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EventWorld]:
    """A controller that keeps local files, an EventSource `local` for the folder `public`, and files beside it."""
    for name in ("public", "private"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "model.onnx").write_bytes(name.encode())
    prefix = (tmp_path / "public").as_uri() + "/"
    async with event_world(tmp_path, files=EventFiles(tmp_path / "kept", LIMIT)) as running:
        await running.cluster.create(EVENT_SOURCE, event_source("local", storagePrefixes=[prefix]), manager="tests")
        yield running


async def send(world: EventWorld, path: Path) -> None:
    """Send an event with a model at the path."""
    await world.send(event_spec(1, event_source="local", change=ModelChange(path.as_uri(), version="1")))


def load(folder: Path, uri: str, digest: str) -> bytes:
    """Load the model like a replica."""
    options = StorageOptions({}, kept=folder / "kept", kept_limit=LIMIT)
    artifact = fetch(uri, digest, folder / "cache", frozenset(), options=options)
    return artifact.read(*artifact.names())


@pytest.mark.parametrize(
    ("link", "target", "named"),
    [
        ("link", "private/model", "link"),
        ("link", "private/model/model.onnx", "link"),
        ("link", "private", "link/model"),
        ("model/other.onnx", "private/model/model.onnx", "model"),
    ],
)
async def test_a_link_that_leads_outside_of_the_prefixes_is_refused(
    world: EventWorld, tmp_path: Path, link: str, target: str, named: str
) -> None:
    (tmp_path / "public" / link).symlink_to(tmp_path / target)
    await send(world, tmp_path / "public" / named)
    await world.becomes(e1="Failed")
    status = (await world.statuses())["1"]
    assert "outside" in status["message"]
    assert (await world.model())["spec"] == {"storageUri": "s3://models/first"}
    assert list((tmp_path / "kept").rglob("*.onnx")) == []


@pytest.mark.parametrize("named", ["model", "model/model.onnx", "latest", "latest/model.onnx"])
async def test_files_below_the_prefixes_are_served_also_after_a_link_replaces_them(
    world: EventWorld, tmp_path: Path, named: str
) -> None:
    public = tmp_path / "public"
    (public / "latest").symlink_to(public / "model")
    await send(world, public / named)
    await world.becomes(e1="Applied")
    spec = (await world.model())["spec"]
    (public / "model").rename(tmp_path / "moved")
    (public / "model").symlink_to(tmp_path / "private" / "model")
    assert load(tmp_path, spec["storageUri"], spec["digest"]) == b"public"


@pytest.mark.parametrize("named", ["model", "model/model.onnx"])
async def test_a_link_that_comes_after_the_check_is_not_followed(
    world: EventWorld, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = tmp_path / "public"

    def then_link(place: LocalPath, roots: list[Path], name: str) -> LocalPath:
        checked = restrict_to(place, roots, name)
        (public / "model").rename(tmp_path / "moved")
        (public / "model").symlink_to(tmp_path / "private" / "model")
        return checked

    monkeypatch.setattr(event_files, "restrict_to", then_link)
    await send(world, public / named)
    await world.becomes(e1="Failed")
    assert "outside" in (await world.statuses())["1"]["message"]


async def test_an_event_of_the_same_files_replaces_their_damaged_copy(world: EventWorld, tmp_path: Path) -> None:
    model = tmp_path / "public" / "model"
    kept.keep(LocalPath(model), model.as_uri(), "", tmp_path / "kept", LIMIT)
    copy = next((tmp_path / "kept").rglob("model.onnx"))
    copy.chmod(0o600)
    copy.write_bytes(b"damaged")
    await send(world, model)
    await world.becomes(e1="Applied")
    assert copy.read_bytes() == b"public"

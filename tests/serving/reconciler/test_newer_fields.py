"""Objects of a newer release: an older release keeps unknown fields, so that the newer one finds them."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import MODEL, Object
from clusters.embedded.cluster import EmbeddedCluster
from serving.reconciler.apply import FIELD_MANAGER
from serving.types.model import HistoryEntry, history_of
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage, platform

LINE: dict[str, Any] = {
    "revision": "magika-00001",
    "cause": {"by": "event", "id": "7", "signedBy": "somebody"},
    "at": "2026-01-01T00:00:00Z",
    "weather": {"was": ["fine"]},
}


@pytest.mark.fault("K14")
def test_a_line_of_history_keeps_what_a_newer_version_wrote_in_it() -> None:
    (entry,) = history_of({"status": {"history": [LINE]}})
    assert isinstance(entry, HistoryEntry)
    assert (entry.cause.by, entry.cause.id) == ("event", "7")
    assert entry.to_json() == LINE
    assert hash(entry) == hash(entry)


@pytest.mark.fault("K14")
async def test_a_status_keeps_what_a_newer_version_wrote_in_it(serving: ModelStage) -> None:
    lines = (await serving.model())["status"]["history"]
    newer = {"forecast": {"replicas": 3}, "history": [{**lines[0], "weather": "fine"}]}
    await serving.cluster.patch(
        MODEL, "magika", {"status": newer}, "default", manager=FIELD_MANAGER, subresource="status"
    )
    await serving.edit({"spec": {"storageUri": "file:///models/v2", "version": "2"}})
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00002": 100})
    model = await serving.model_is("True")
    assert model["status"]["forecast"] == {"replicas": 3}
    assert [line.get("weather") for line in model["status"]["history"]] == ["fine", None]


@pytest.mark.fault("K14")
async def test_a_spec_of_a_newer_version_is_told_kept_and_serves_on(cluster: EmbeddedCluster) -> None:
    """No door of this version refuses it: it is stored already."""
    async with platform(cluster) as stage:
        await stage.deploy(model_object())
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await stage.edit({"spec": {"mood": "of tomorrow"}})
        model = await stage.model_is("False", reason="InvalidSpec")
        assert "spec.mood" in message_of(model)
        assert await stage.host_gets() == {"magika-00001": 100}
        await stage.quiet()
        assert (await stage.model())["spec"]["mood"] == "of tomorrow"
        assert [one["percent"] for one in model["status"]["traffic"]] == [100]


def message_of(model: Object) -> str:
    """Of its condition Ready."""
    return str(next(one for one in model["status"]["conditions"] if one["type"] == "Ready")["message"])

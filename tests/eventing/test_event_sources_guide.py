"""The EventSources in docs/event-sources.md are valid, and map events as described."""

from __future__ import annotations

import textwrap
from pathlib import Path

import yaml

from clusters.base.objects import Object
from clusters.net.cloudevents import Event
from eventing.mapping.event_source import read_event_source
from eventing.mapping.jobs import JOB_KINDS
from eventing.mapping.presets import PLAIN_JSON, PRESETS
from eventing.mapping.transforms import TRANSFORMS
from eventing.objects.ports import EventSource, Mapped, ModelChange
from serving.types.event_source import validate_event_source

GUIDE = (Path(__file__).parents[2] / "docs" / "event-sources.md").read_text()


def shown() -> dict[str, Object]:
    """Return the guide's objects by name."""
    blocks = [block for block in GUIDE.split("\n\n") if block.startswith("    apiVersion:")]
    objects = [yaml.safe_load(textwrap.dedent(block)) for block in blocks]
    return {obj["metadata"]["name"]: obj for obj in objects}


def read(name: str) -> EventSource:
    """Return one of them, parsed."""
    obj = shown()[name]
    assert list(validate_event_source(None, obj)) == []
    return read_event_source({**obj, "metadata": {**obj["metadata"], "namespace": "ml"}})


def meant(source: EventSource, event: Event) -> Mapped:
    """Return the meaning of an event for the EventSource."""
    assert source.mapping is not None
    return source.mapping.map(event, "ml")


def test_a_pipeline_is_read_as_the_guide_says() -> None:
    run = {"state": "succeeded", "outputs": [{"kind": "model"}], "run": "r7", "pipeline": "iris", "commit": "ab12"}
    sent = Event(id="1", source="https://ci.example.org/a", type="org.example.run.ended", data=run)
    ended = {**run, "finishedAt": "2026-01-01T12:00:00Z"}

    found = meant(read("pipeline"), Event(id="2", source=sent.source, type=sent.type, data=ended))

    assert (found.id, found.change) == ("r7", ModelChange("s3://models/iris/r7/", version="ab12"))
    barren = Event(id="3", source=sent.source, type=sent.type, data={**run, "outputs": []})
    assert meant(read("pipeline"), barren).ignored == "the run made no model"


def test_one_registered_model_of_mlflow_is_read_as_the_guide_says() -> None:
    def version(name: str) -> Event:
        data = {"name": name, "version": "3", "source": "s3://mlflow/1", "tags": {}}
        sent = {"entity": "model_version", "action": "created", "timestamp": "2026-01-01T12:00:00+00:00", "data": data}
        return Event(id=name, source="/mlflow", type=PLAIN_JSON, data=sent)

    found = meant(read("mlflow"), version("Fraud_Model"))
    assert found.model is not None
    assert str(found.model) == "ml/fraud"
    assert meant(read("mlflow"), version("Other")).ignored


def test_every_preset_kind_and_transform_is_told() -> None:
    assert all(f"| `{preset}` |" in GUIDE for preset in PRESETS)
    assert all(f"`{job.kind.kind}`" in GUIDE for job in JOB_KINDS)
    assert all(f"` | {name}`" in GUIDE for name in TRANSFORMS)

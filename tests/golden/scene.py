"""Where a case plays: one namespace of one cluster, with one Knative Service in it and a recorder on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from clusters.base.api import Cluster
from clusters.base.objects import (
    ANNOTATION_CLASS,
    MODEL,
    SERVICE,
    Key,
    Kind,
    Object,
    condition_of,
    generation_of,
    is_true,
)
from serving.makers.pod_spec import make_revision_spec
from serving.types.settings.settings import ServerSettings
from serving.types.validation import read_model
from tests.golden.recorder import Recorder

NAME = "app"
FIRST, SECOND = f"{NAME}-00001", f"{NAME}-00002"
MANAGER = "golden"
KEPT = {"min_scale": "1", "window": "60s"}  # nothing changes by itself while a case plays
RESOURCES = {"cpu": "50m", "memory": "256Mi"}


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster on which cases play, and what differs from one cluster to the other; times in seconds."""

    cluster: Cluster
    autoscaler_class: str
    server: ServerSettings
    artifact: Callable[[str], str]  # name in `tests.support.models` → storageUri
    ask: Callable[[Key], Awaitable[int]]  # one inference at a Service's public address → HTTP status
    deadline: int  # in which a version that is made in vain must become ready, whole seconds
    window: int  # without a request before a Service that may goes to zero, whole seconds; ≥ 6, Knative's least
    within: float  # for one step of a case
    quiet: float  # without a change of any condition: then all has settled


class Scene:
    """One run of one case."""

    def __init__(self, stage: Stage, namespace: str, recorder: Recorder) -> None:
        self.recorder = recorder
        self._stage = stage
        self._namespace = namespace
        self._begin = 0
        self._generation = 0

    @property
    def begin(self) -> int:
        """The version behind which the trace begins."""
        return self._begin

    async def settled(self) -> None:
        """Wait until nothing changes any more."""
        await self.recorder.quiet(self._stage.quiet, self._stage.within)

    async def set_up(self) -> None:
        """What was done so far is no part of the trace."""
        await self.settled()
        self._begin = self.recorder.version

    async def until(self, look: Callable[[], bool]) -> None:
        """Wait until `look` is true of what the recorder has seen."""
        await self.recorder.until(look, self._stage.within)

    async def create(self, *, to_zero: bool = False) -> None:
        """Create the Service, with a good model; it keeps a replica, unless it is `to_zero` when nobody asks."""
        scaling = {"min_scale": "0", "window": f"{self._stage.window}s"} if to_zero else KEPT
        template = self._template("double", scaling)
        made = {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.kind,
            "metadata": {"name": NAME, "namespace": self._namespace},
            "spec": {"template": template},
        }
        await self._stage.cluster.create(SERVICE, made, manager=MANAGER)

    async def ready(self) -> None:
        """Wait until the Service says that what it was last told is in force."""
        await self.until(self.is_served)

    async def deploy(self, model: str, *, in_vain: bool = False) -> None:
        """Give the Service another model: a new version, which is given up soon if it is known to be `in_vain`."""
        annotations = {"serving.knative.dev/progress-deadline": f"{self._stage.deadline}s"} if in_vain else {}
        spec = self._template(model, {})["spec"]
        await self._change({"template": {"metadata": {"annotations": annotations}, "spec": spec}})

    async def route(self, *targets: Object) -> None:
        """Give the Service this traffic."""
        await self._change({"traffic": list(targets)})

    async def delete(self) -> None:
        """Delete the Service."""
        await self._stage.cluster.delete(SERVICE, NAME, self._namespace)

    async def ask(self) -> int:
        """One request to the Service; returns the status of the answer."""
        return await self._stage.ask(Key(self._namespace, NAME))

    def is_served(self) -> bool:
        """Whether the Service says that what it was last told is in force."""
        found = self.recorder.get(SERVICE, NAME)
        return found is not None and generation_of(found) >= self._generation and is_true(found, "Ready")

    def is_ready(self, kind: Kind, name: str) -> bool:
        """Whether an object is Ready at its present generation."""
        found = self.recorder.get(kind, name)
        return found is not None and is_true(found, "Ready")

    def condition(self, kind: Kind, name: str, condition: str) -> tuple[str, str]:
        """Status and reason, empty where there is none."""
        found = self.recorder.get(kind, name)
        said = (condition_of(found, condition) if found is not None else None) or {}
        return said.get("status", ""), said.get("reason", "")

    async def _change(self, spec: Object) -> None:
        told = await self._stage.cluster.patch(SERVICE, NAME, {"spec": spec}, self._namespace, manager=MANAGER)
        self._generation = generation_of(told)

    def _template(self, model: str, scaling: Mapping[str, str]) -> Object:
        stage = self._stage
        return make_template(NAME, stage.artifact(model), stage.server, stage.autoscaler_class, scaling)


def make_template(
    name: str,
    storage_uri: str,
    server: ServerSettings,
    autoscaler_class: str,
    scaling: Mapping[str, str],
    digest: str = "",
) -> Object:
    """The template that our makers make, with scaling in Knative's own words: no controller of ours is needed.

    `scaling`: `min_scale` stands for `autoscaling.knative.dev/min-scale`. The activator leaves the path as soon as a
    replica is ready, on every cluster. A template for another class than ours needs the `digest` of the model: its
    replicas would wait for our autoscaler to confirm one.
    """
    spec = {"storageUri": storage_uri, "resources": RESOURCES, **({"digest": digest} if digest else {})}
    metadata = {"name": name, "namespace": "default"}
    model = read_model({"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec})
    said = {"target_burst_capacity": "0", **scaling}
    annotations = {f"autoscaling.knative.dev/{key.replace('_', '-')}": value for key, value in said.items()}
    annotations[ANNOTATION_CLASS] = autoscaler_class
    return {"metadata": {"annotations": annotations}, "spec": make_revision_spec(model, None, server)}

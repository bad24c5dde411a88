"""Knative objects by example: what `bad_objects` and `good_objects` are made of."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from clusters.base.objects import CONFIGURATION, ROUTE, SERVICE, Kind, Object

KINDS = {kind.kind: kind for kind in (SERVICE, CONFIGURATION, ROUTE)}

POD = "spec.template.spec"
BOX = f"{POD}.containers.0"
NOTES = "spec.template.metadata.annotations"
LABELS = "spec.template.metadata.labels"
TRAFFIC = "spec.traffic"
SCALING = "autoscaling.knative.dev"


@dataclass(frozen=True, slots=True)
class Example:
    """A Knative object; `name` says in a few words what is special about it."""

    name: str
    object: Object

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.object["kind"]]

    def __str__(self) -> str:
        return self.name


def service() -> Object:
    """The smallest Service."""
    return _object(SERVICE, {"template": _template()})


def configuration() -> Object:
    """The smallest Configuration."""
    return _object(CONFIGURATION, {"template": _template()})


def route() -> Object:
    """The smallest Route."""
    return _object(ROUTE, {"traffic": [{"configurationName": "example", "percent": 100}]})


def changed(obj: Object, *changes: tuple[str, Any]) -> Object:
    """A copy with a value at each dotted path; numbers are positions in lists."""
    made = copy.deepcopy(obj)
    for path, value in changes:
        *way, last = path.split(".")
        place: Any = made
        for step in way:
            place = place[int(step)] if step.isdecimal() else place.setdefault(step, {})
        place[int(last) if last.isdecimal() else last] = value
    return made


def of_service(name: str, *changes: tuple[str, Any]) -> Example:
    """The smallest Service with changes."""
    return Example(name, changed(service(), *changes))


def scaled(name: str, **annotations: str) -> Example:
    """A Service with annotations of autoscaling: `min_scale` is `autoscaling.knative.dev/min-scale`."""
    return of_service(name, (NOTES, {f"{SCALING}/{key.replace('_', '-')}": text for key, text in annotations.items()}))


def with_traffic(name: str, *targets: Object) -> Example:
    """A Service with this traffic."""
    return of_service(name, (TRAFFIC, list(targets)))


def with_volume(name: str, source: Object, /, **mount: Any) -> Example:
    """A Service whose container mounts one volume."""
    mounted = {"name": "files", "mountPath": "/files", **mount}
    return of_service(name, (f"{POD}.volumes", [{"name": "files", **source}]), (f"{BOX}.volumeMounts", [mounted]))


def _object(kind: Kind, spec: Object) -> Object:
    metadata = {"name": "example"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _template() -> Object:
    return {"spec": {"containers": [{"image": "dev.local/example:1"}]}}

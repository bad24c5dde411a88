"""What a platform has written so far, told by the transcript of its store; each transaction is checked as it is read.

It goes on being right while the platform is dead: what is not in it was never on the disk.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    LABEL_CONFIGURATION,
    LABEL_CONFIGURATION_GENERATION,
    MODEL,
    MODEL_EVENT,
    POD,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    Object,
    annotations_of,
    controller_of,
)
from eventing.objects.apis import FINAL_PHASES
from tests.faults.kit.crash import transcript_of

ALL = 100  # percent
ONE_OF_EACH = frozenset(
    kind.resource for kind in (SERVICE, CONFIGURATION, ROUTE, POD_AUTOSCALER, SERVERLESS_SERVICE, DEPLOYMENT, INGRESS)
)
"""Kinds of which nobody has two: a Model without variants, a Revision, a Route."""


class Ledger:
    """All objects as the last transaction left them, and what was wrong in any of them."""

    def __init__(self, folder: Path) -> None:
        self.faults: list[str] = []
        self.transactions = 0
        self._path = transcript_of(folder)
        self._read = 0  # bytes
        self._objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)

    def follow(self) -> None:
        """Read what was written since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is being written
                self._read += len(line)
                self._take(json.loads(line))

    def of_kind(self, kind: Kind) -> list[Object]:
        """All objects of the kind."""
        return list(self._objects[kind.resource].values())

    def get(self, kind: Kind, name: str) -> Object | None:
        """One in the default namespace."""
        return self._objects[kind.resource].get(f"default/{name}")

    def everything(self) -> Iterator[tuple[str, Object]]:
        """(resource, object)."""
        for resource, objects in self._objects.items():
            for obj in objects.values():
                yield resource, obj

    def orphans(self) -> list[str]:
        """Objects whose owner is gone, for good or for another one of its name."""
        living = {obj["metadata"]["uid"] for _, obj in self.everything()}
        return [
            f"{resource} {obj['metadata']['name']}"
            for resource, obj in self.everything()
            for owner in obj["metadata"].get("ownerReferences", ())
            if owner["uid"] not in living
        ]

    def _take(self, rows: list[tuple[str, str, Object | None]]) -> None:
        self.transactions += 1
        for resource, name, value in rows:
            before = self._objects[resource].pop(name, None)
            if value is not None:
                self._objects[resource][name] = value
                self.faults += [f"{resource} {name}: {one}" for one in changes(resource, before, value)]
        self.faults += [f"transaction {self.transactions}: {one}" for one in self._doubled({row[0] for row in rows})]

    def _doubled(self, resources: set[str]) -> Iterator[str]:
        """Children that an owner has twice, and versions with two Revisions."""
        for resource in resources & ONE_OF_EACH:
            owners = Counter(owner_of(obj) for obj in self._objects[resource].values())
            yield from (f"{owner} has {many} {resource}" for owner, many in owners.items() if owner and many > 1)
        if REVISION.resource in resources:
            versions = Counter(map(version_of_revision, self._objects[REVISION.resource].values()))
            yield from (f"{version} has {many} Revisions" for version, many in versions.items() if many > 1)
        if REPLICA_SET.resource in resources:
            owners = Counter(owner_of(obj) for obj in self.of_kind(REPLICA_SET) if obj["spec"].get("replicas"))
            yield from (f"{owner} has {many} ReplicaSets with replicas" for owner, many in owners.items() if many > 1)


def owner_of(obj: Object) -> str:
    """The uid of its controller; empty without one."""
    return str((controller_of(obj) or {}).get("uid", ""))


def version_of_revision(revision: Object) -> tuple[str, str]:
    """The Configuration and its generation that a Revision was made for."""
    labels = revision["metadata"]["labels"]
    return labels[LABEL_CONFIGURATION], labels[LABEL_CONFIGURATION_GENERATION]


def changes(resource: str, before: Object | None, after: Object) -> Iterator[str]:
    """What is wrong with one write: traffic that is not 100 %, a claim that moves, an event that has two ends."""
    for where, shares in splits(resource, after):
        if sum(shares) != ALL:
            yield f"{where} sums to {sum(shares)}"
    if before is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return
    if resource == POD.resource:
        former = annotations_of(before).get(ANNOTATION_CLAIM)
        if former and former != annotations_of(after).get(ANNOTATION_CLAIM):
            yield "it was claimed twice"
    if resource == MODEL_EVENT.resource:
        phases = [(obj.get("status") or {}).get("phase") for obj in (before, after)]
        if phases[0] in FINAL_PHASES and phases[0] != phases[1]:
            yield f"it went from {phases[0]} to {phases[1]}"


def splits(resource: str, obj: Object) -> Iterator[tuple[str, list[int]]]:
    """The lists of shares that an object has, each with its place; those that are not made yet are left out."""
    places: list[tuple[str, Any]] = []
    if resource == ROUTE.resource:
        places = [("spec.traffic", obj["spec"].get("traffic")), ("status.traffic", _status(obj).get("traffic"))]
    if resource == MODEL.resource:
        places = [("status.traffic", _status(obj).get("traffic"))]
    if resource == INGRESS.resource:
        paths = (path for rule in obj["spec"].get("rules", ()) for path in rule["http"]["paths"])
        places = [("a path's splits", path.get("splits")) for path in paths]
    for where, entries in places:
        if entries:
            yield where, [int(entry.get("percent") or 0) for entry in entries]


def _status(obj: Object) -> Mapping[str, Any]:
    status: Mapping[str, Any] = obj.get("status") or {}
    return status

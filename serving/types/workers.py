"""The table of `spec.workers`: the worker Pods of each replica (see `tables`). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from serving.types import formats
from serving.types.faults import GROUP_FORMATS
from serving.types.fields import Integer, Text
from serving.types.reader import Reader
from serving.types.resources import DEFAULT_RESOURCES, Resources
from serving.types.schema import rule
from serving.types.tables import Nested, read

MOST_WORKERS: Final = 64
"""Workers of one replica. Larger groups need the network's topology, which the scheduler of Kubernetes ignores."""

NO_WORKERS: Final = "is not for a model at ray.service, whose Ray has nodes of its own: omit it"

WHOLE_GPUS: Final = "is for replicas of one Pod: give workers whole GPUs with gpu"
LEADERS_TYPES: Final = "is that of the leader: omit it, and set spec.resources.gpuTypes"

OnLoss = Literal["restart", "tolerate"]
Scheduler = Literal["volcano", "kueue"]


@dataclass(frozen=True, slots=True)
class Gang:
    """Gang scheduling: the workers of a replica get their nodes together, or none of them does."""

    scheduler: Annotated[Scheduler, Text("Scheduler of the gang.", formats.one_of(*get_args(Scheduler)))]
    queue: Annotated[str, Text("Queue of the scheduler. Kueue needs one.", formats.SUBDOMAIN)] = ""


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker Pods of each replica, beside its leader, which answers the requests.

    `gang` None: each worker is scheduled by itself.
    """

    count: Annotated[int, Integer("Number of workers of a replica.", 1, MOST_WORKERS)]
    resources: Annotated[
        Resources,
        Nested(
            f"Resources of each worker. Default: cpu {DEFAULT_RESOURCES.cpu}, memory {DEFAULT_RESOURCES.memory}.",
            Resources,
        ),
    ] = DEFAULT_RESOURCES
    on_loss: Annotated[
        OnLoss,
        Text(
            "Reaction to the loss of a worker. restart: all workers start anew, and the replica is not ready "
            "meanwhile. tolerate: the replica goes on with the others, and only the lost worker is replaced.",
            formats.one_of(*get_args(OnLoss)),
        ),
    ] = "restart"
    gang: Annotated[Gang | None, Nested("", Gang)] = None

    RULES: ClassVar = (
        rule(
            "!has(self.gang) || self.gang.scheduler != 'kueue' || has(self.gang.queue)",
            "is required with kueue: the name of a LocalQueue",
            ".gang.queue",
        ),
        rule("!has(self.resources) || !has(self.resources.gpuTypes)", LEADERS_TYPES, ".resources.gpuTypes"),
        rule("!has(self.resources) || !has(self.resources.gpuFraction)", WHOLE_GPUS, ".resources.gpuFraction"),
    )

    @staticmethod
    def complete(values: dict[str, Any]) -> None:
        """Set absent resources to their defaults."""
        if "resources" in values:
            values["resources"] = values["resources"].otherwise(DEFAULT_RESOURCES)

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rule in Python."""
        if self.gang is not None and self.gang.scheduler == "kueue" and not self.gang.queue:
            yield "gang.queue", "is required with kueue: the name of a LocalQueue"
        if self.resources.gpu_types:
            yield "resources.gpuTypes", LEADERS_TYPES
        if self.resources.gpu_fraction:
            yield "resources.gpuFraction", WHOLE_GPUS


def workers_fault(model_format: str) -> str:
    """Return why a model of this format has no `workers`; empty if it may have them."""
    if model_format in GROUP_FORMATS:
        return ""
    return f"is for models with modelFormat {' or '.join(GROUP_FORMATS)}: omit it, or set modelFormat"


def to_json(workers: Workers) -> str:
    """Return the fields as JSON, with all defaults."""
    one = workers.resources
    resources = {"cpu": one.cpu, "memory": one.memory, "gpu": one.gpu, "gpuResource": one.gpu_resource}
    fields: dict[str, Any] = {
        "count": workers.count,
        "resources": {name: value for name, value in resources.items() if value},
        "onLoss": workers.on_loss,
    }
    if workers.gang is not None:
        gang = {"scheduler": workers.gang.scheduler, "queue": workers.gang.queue}
        fields["gang"] = {name: value for name, value in gang.items() if value}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Workers | None:
    """Return the inverse of `to_json`; None if the text is not valid."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    reader = Reader(found, "", [])
    workers = read(Workers, reader)
    return None if reader.errors else workers

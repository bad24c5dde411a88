"""The CustomResourceDefinitions of Knodel's kinds, made from the tables of their fields. Pure.

`manifests/base/crds` are their results; a test keeps them equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from autoscaler.warmpool.spec import AUTO
from clusters.base.objects import EVENT_SOURCE, MODEL, MODEL_EVENT, WARM_POOL, Kind, Object
from serving.crds import status
from serving.types.event_source import EVENT_SOURCE_TABLE
from serving.types.schema import RULES, Schema, plain
from serving.types.tables import Nested, described
from serving.types.validation import MODEL_TABLE, KindTable
from serving.types.warm_pool import WARM_POOL_TABLE

CATEGORIES: Final = ("all", "knodel")
"""`kubectl get all` and `kubectl get knodel` list our kinds too."""
TABLES: Final[Mapping[Kind, KindTable[Any]]] = {
    table.kind: table for table in (MODEL_TABLE, WARM_POOL_TABLE, EVENT_SOURCE_TABLE)
}
"""The kinds whose objects users write."""


def column(name: str, path: str, about: str, type: str = "string", wide: bool = False) -> Object:
    """Return a column of `kubectl get`; if `wide`, only with `-o wide`."""
    shown: Object = {"name": name, "type": type, "jsonPath": path, "description": about}
    return shown | ({"priority": 1} if wide else {})


def make_schema(kind: Kind) -> Schema:
    """Return the structural schema of one of our kinds. Raises KeyError for other kinds."""
    if kind == MODEL_EVENT:
        about, spec = "An accepted event and its outcome.", status.make_event_spec()
        rules: Sequence[Schema] = ()
    else:
        table = TABLES[kind]
        about, rules = table.about, (*table.name.rules, *table.rules)
        spec = described(Nested("", table.spec))
    schema = {
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": plain("string"),
            "kind": plain("string"),
            "metadata": plain("object", properties={"name": plain("string")}),  # rules can refer to it
            "spec": spec,
            "status": _STATUS[kind](),
        },
    }
    return schema | ({RULES: list(rules)} if rules else {})


def make_crd(kind: Kind) -> Object:
    """Return the CustomResourceDefinition of one of our kinds. Raises KeyError for other kinds."""
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "categories": list(CATEGORIES),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names | ({"shortNames": list(kind.short_names)} if kind.short_names else {}),
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(COLUMNS[kind]),
                    "schema": {"openAPIV3Schema": make_schema(kind)},
                }
            ],
        },
    }


_STATUS: Final = {
    MODEL: status.make_status_schema,
    WARM_POOL: status.make_pool_status,
    EVENT_SOURCE: status.make_event_source_status,
    MODEL_EVENT: status.make_event_status,
}
_READY: Final = '.status.conditions[?(@.type=="Ready")]'
_AGE: Final = column("Age", ".metadata.creationTimestamp", "Time since its creation", "date")
COLUMNS: Final[Mapping[Kind, Sequence[Object]]] = {
    MODEL: (  # a column has one value, so columns of the traffic show the first target
        column("Ready", f"{_READY}.status", "Whether the newest version is ready and the traffic split is in force"),
        column("Reason", f"{_READY}.reason", "Reason why it is not ready"),
        column("Replicas", ".status.replicas.ready", "Ready replicas", "integer"),
        column("Desired", ".status.replicas.desired", "Desired replicas", "integer"),
        column("Serving", ".status.traffic[0].revision", "Revision with the largest share of traffic"),
        column("Percent", ".status.traffic[0].percent", "Percentage of traffic to that revision", "integer"),
        column("Version", ".status.traffic[0].version", "Label of that version"),
        column("Rollout", ".status.rollout.phase", "Phase of the last rollout"),
        column("URL", ".status.url", "URL of the model"),
        column("Latest", ".status.latestCreatedRevision", "Newest revision", wide=True),
        column("Storage", ".spec.storageUri", "Address of the model's files", wide=True),
        _AGE,
    ),
    WARM_POOL: (
        column("Size", ".spec.size", f"Size in the spec; empty: {AUTO}"),
        column("Wanted", ".status.size", "Desired number of members", "integer"),
        column("Ready", ".status.ready", "Members that can be claimed", "integer"),
        column("Claimed", ".status.claimed", "Claims in progress", "integer"),
        column("Starting", ".status.starting", "Members that are not ready yet", "integer", wide=True),
        column("Seed", ".status.seed.message", "Reason why there are no members", wide=True),
        _AGE,
    ),
    EVENT_SOURCE: (
        column("Source", ".spec.source", "Value of `source` of its events"),
        column("Models", ".spec.models", "Models that its events may change"),
        column("Ready", f"{_READY}.status", "Whether events can be sent with it"),
        column("Reason", f"{_READY}.reason", "Reason"),
        column("Pending", ".status.pending", "Waiting events at the last count", "integer", wide=True),
        column("Message", f"{_READY}.message", "Message with the remedy", wide=True),
        _AGE,
    ),
    MODEL_EVENT: (
        column("Model", ".spec.model.name", "Model that the event changes"),
        column("Phase", ".status.phase", "Phase of its processing"),
        column("Source", ".spec.source", "Value of `source`"),
        column("Id", ".spec.id", "Value of `id`"),
        column("Message", ".status.message", "Message of the phase", wide=True),
        column("Storage", ".spec.change.storageUri", "Address of its artifact", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since its arrival", "date"),
    ),
}

"""The CustomResourceDefinition of Model. Pure.

`manifests/base/crds/models.yaml` holds the answer of `make_model_crd`; a test keeps them equal.
"""

from __future__ import annotations

from typing import Any

from clusters.objects import MODEL, Kind, Object
from serving.apis import faults
from serving.resources.crds.schema import RULES, Schema, matches, plain, rule, words_of
from serving.resources.crds.spec import make_spec, root_rules
from serving.resources.crds.status import make_status_schema

CATEGORIES = ("all", "knodel")
"""`kubectl get all` and `kubectl get knodel` list Models too."""


def make_model_crd() -> Object:
    """The CustomResourceDefinition as it is applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": MODEL.resource},
        "spec": {
            "group": MODEL.group,
            "scope": "Namespaced" if MODEL.namespaced else "Cluster",
            "names": _names(MODEL),
            "versions": [
                {
                    "name": MODEL.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": make_model_schema()},
                }
            ],
        },
    }


def make_model_schema() -> Schema:
    """The structural schema of a whole Model."""
    return {
        "description": "A model that is served: what runs, how it scales, and who gets which version.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": plain("string"),
            "kind": plain("string"),
            "metadata": plain("object", properties={"name": plain("string")}),  # rules may name it then
            "spec": make_spec(),
            "status": make_status_schema(),
        },
        RULES: [*_name_rules(), *root_rules()],
    }


def _names(kind: Kind) -> Object:
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "categories": list(CATEGORIES),
    }
    return names | ({"shortNames": list(kind.short_names)} if kind.short_names else {})


def _name_rules() -> list[Schema]:
    """CEL on the definition sees the name, so no admission policy is needed for it."""
    name = "self.metadata.name"
    syntax = matches(faults.DNS_1035.pattern).replace("self", name, 1)
    reserved = (
        rule(f"!{name}.startsWith('{tag}-')", faults.model_name_fault(f"{tag}-"), ".metadata.name")
        for tag in faults.RESERVED_TAGS
    )
    too_long = "x" * (faults.LONGEST_NAME + 1)
    return [
        *reserved,
        rule(syntax, words_of(faults.label_fault, "-"), ".metadata.name"),
        rule(f"size({name}) <= {faults.LONGEST_NAME}", words_of(faults.label_fault, too_long), ".metadata.name"),
    ]


def _columns() -> list[Object]:
    """What `kubectl get models` shows; a column shows one value, so of the traffic the first part."""
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        _column("Ready", f"{ready}.status", "Whether the newest version is ready and the split in force was seen"),
        _column("Reason", f"{ready}.reason", "Why it is not"),
        _column("Replicas", ".status.replicas.ready", "Replicas that are ready", "integer"),
        _column("Desired", ".status.replicas.desired", "Replicas that are wanted", "integer"),
        _column("Serving", ".status.traffic[0].revision", "The revision with the largest share"),
        _column("Percent", ".status.traffic[0].percent", "Its share of the traffic", "integer"),
        _column("Version", ".status.traffic[0].version", "What people call that version"),
        _column("URL", ".status.url", "Where the model answers"),
        _column("Latest", ".status.latestCreatedRevision", "The newest revision", wide=True),
        _column("Storage", ".spec.storageUri", "Where the model lies", wide=True),
        _column("Age", ".metadata.creationTimestamp", "Since it was made", "date"),
    ]


def _column(name: str, path: str, about: str, type: str = "string", wide: bool = False) -> Object:
    column: Object = {"name": name, "type": type, "jsonPath": path, "description": about}
    return column | ({"priority": 1} if wide else {})

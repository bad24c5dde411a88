"""The common parts of our CustomResourceDefinitions: names, the version, columns of `kubectl get`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clusters.base.objects import Kind, Object
from serving.crds.schema import Schema, matches, rule, words_of
from serving.types import faults

CATEGORIES = ("all", "knodel")
"""`kubectl get all` and `kubectl get knodel` list our kinds too."""


def make_definition(kind: Kind, schema: Schema, columns: Sequence[Object]) -> Object:
    """Return the CustomResourceDefinition of `kind`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": _names(kind),
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def column(name: str, path: str, about: str, type: str = "string", wide: bool = False) -> Object:
    """Return a column of `kubectl get`; if `wide`, only with `-o wide`."""
    shown: Object = {"name": name, "type": type, "jsonPath": path, "description": about}
    return shown | ({"priority": 1} if wide else {})


def name_rules(longest: int) -> list[Schema]:
    """Return the rules by which `metadata.name` is a DNS-1035 label of at most `longest` characters."""
    name, field = "self.metadata.name", ".metadata.name"
    syntax = matches(faults.DNS_1035.pattern).replace("self", name, 1)

    def fault(text: str) -> str:
        return faults.label_fault(text, longest)

    return [
        rule(syntax, words_of(fault, "-"), field),
        rule(f"size({name}) <= {longest}", words_of(fault, "x" * (longest + 1)), field),
    ]


def _names(kind: Kind) -> Object:
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "categories": list(CATEGORIES),
    }
    return names | ({"shortNames": list(kind.short_names)} if kind.short_names else {})

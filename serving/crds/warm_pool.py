"""The CustomResourceDefinition of WarmPool, with the bounds of `serving.types.warm_pool`. Pure.

`manifests/base/crds/warmpools.yaml` is the result of `make_warm_pool_crd`; a test keeps them equal. The schema sets no
defaults, as that of a Model (`serving.crds.spec`).
"""

from __future__ import annotations

from autoscaler.warmpool.spec import AUTO, MAX, MAX_AGE, MIN
from clusters.base.durations import format_duration
from clusters.base.objects import WARM_POOL, Object
from serving.crds import texts
from serving.crds.definition import column, make_definition, name_rules
from serving.crds.schema import Schema, integer, listing, mapping, opaque, plain, record, refused, rule
from serving.crds.spec import what_runs
from serving.crds.status import make_condition
from serving.types import faults, warm_pool

LATER_TEXTS = ("protocol",)
"""Fields that are not supported yet and are strings; the others are mappings."""


def make_warm_pool_crd() -> Object:
    """Return the CustomResourceDefinition."""
    return make_definition(WARM_POOL, make_warm_pool_schema(), _columns())


def make_warm_pool_schema() -> Schema:
    """Return the structural schema of a WarmPool."""
    return {
        "description": "Servers that wait for a model. A starting replica takes one of them instead of a new Pod.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": plain("string"),
            "kind": plain("string"),
            "metadata": plain("object", properties={"name": plain("string")}),
            "spec": _spec(),
            "status": _status(),
        },
        "x-kubernetes-validations": name_rules(faults.LONGEST_POOL_NAME),
    }


def _spec() -> Schema:
    most = warm_pool.MOST_MEMBERS
    age = format_duration(MAX_AGE)
    return mapping(
        "Desired state of the WarmPool.",
        {
            "template": _template(),
            "size": _size(),
            "min": integer(f"Minimum number of members if size is {AUTO}. Default: {MIN}.", 0, most),
            "max": integer(
                f"Maximum number of members if size is {AUTO}. Default: {MAX}, or min if that is larger.", 1, most
            ),
            "maxAge": texts.duration(
                f"Age at which a member is replaced. Default: {age}.", warm_pool.LEAST_AGE, warm_pool.MOST_AGE
            ),
            "budget": mapping(
                "Maximum resources of all members together. Absent resources are not limited.",
                {"cpu": texts.quantity("CPU cores."), "memory": texts.quantity("Memory in bytes.")},
            ),
        },
        rule("!has(self.min) || !has(self.max) || self.min <= self.max", "must be at most max", ".min"),
    )


def _template() -> Schema:
    later = {
        name: plain("string", f"Not supported yet: {words}.")
        if name in LATER_TEXTS
        else opaque(f"Not supported yet: {words}.")
        for name, words in warm_pool.LATER_TEMPLATE.items()
    }
    return mapping(
        "Fields that members share with the Models that claim them. Defaults are those of a Model.",
        {**{name: what_runs()[name] for name in warm_pool.OF_A_MODEL}, **later},
        *refused(warm_pool.LATER_TEMPLATE),
    )


def _size() -> Schema:
    most = warm_pool.MOST_MEMBERS
    good = f"type(self) == string ? self == '{AUTO}' : self >= 0 && self <= {most}"
    return {
        "description": f"Number of ready members, or {AUTO}: derived from arrivals and start times. Default: {AUTO}.",
        "x-kubernetes-int-or-string": True,
        "maxLength": warm_pool.LONGEST_SIZE,
        "x-kubernetes-validations": [rule(good, f"must be {AUTO} or a whole number from 0 to {most}")],
    }


def _status() -> Schema:
    """Return the schema of `status`: types and no bounds, because a refused status would leave an old one in place."""
    return record(
        "Observed state of the WarmPool.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that the status describes.", format="int64"),
            "conditions": listing("Conditions: Ready and its parts.", make_condition()),
            "size": plain("integer", "Desired number of members.", format="int32"),
            "ready": plain("integer", "Members that can be claimed.", format="int32"),
            "starting": plain("integer", "Members that are not ready yet.", format="int32"),
            "claimed": plain("integer", "Claims in progress.", format="int32"),
            "reasons": listing("Reasons for the desired number.", plain("string")),
            "seed": record(
                "The Configuration whose Pod template members are created from.",
                {
                    "ready": plain("boolean", "Whether Knative has created its Deployment."),
                    "message": plain("string", "Reason why it has not, and the remedy."),
                },
            ),
        },
    )


def _columns() -> list[Object]:
    """Return the columns of `kubectl get warmpools`."""
    return [
        column("Size", ".spec.size", f"Size in the spec; empty: {AUTO}"),
        column("Wanted", ".status.size", "Desired number of members", "integer"),
        column("Ready", ".status.ready", "Members that can be claimed", "integer"),
        column("Claimed", ".status.claimed", "Claims in progress", "integer"),
        column("Starting", ".status.starting", "Members that are not ready yet", "integer", wide=True),
        column("Seed", ".status.seed.message", "Reason why there are no members", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since its creation", "date"),
    ]

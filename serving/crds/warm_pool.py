"""The CustomResourceDefinition of WarmPool: every bound and word is the Python door's own. Pure.

`manifests/base/crds/warmpools.yaml` holds the answer of `make_warm_pool_crd`; a test keeps them equal. No defaults
stand in the schema, as in a Model's (`crds.spec`).
"""

from __future__ import annotations

from autoscaler.warmpool.defaults import AUTO, MAX, MAX_AGE, MIN
from clusters.base.durations import format_duration
from clusters.base.objects import WARM_POOL, Object
from serving.crds import texts
from serving.crds.definition import column, make_definition, name_rules
from serving.crds.schema import Schema, integer, listing, mapping, opaque, plain, record, refused, rule
from serving.crds.spec import what_runs
from serving.crds.status import make_condition
from serving.types import faults, warm_pool

LATER_TEXTS = ("protocol",)
"""Fields of later releases that are texts; the others are mappings."""


def make_warm_pool_crd() -> Object:
    """The CustomResourceDefinition as it is applied."""
    return make_definition(WARM_POOL, make_warm_pool_schema(), _columns())


def make_warm_pool_schema() -> Schema:
    """The structural schema of a whole WarmPool."""
    return {
        "description": "Servers that run and wait for a model: a start takes one of them instead of a new Pod.",
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
        "What is asked for.",
        {
            "template": _template(),
            "size": _size(),
            "min": integer(f"Members at least, when size is {AUTO}; default {MIN}.", 0, most),
            "max": integer(f"Members at most, when size is {AUTO}; default {MAX}, or min when that is more.", 1, most),
            "maxAge": texts.duration(
                f"Until a member is replaced; default {age}.", warm_pool.LEAST_AGE, warm_pool.MOST_AGE
            ),
            "budget": mapping(
                "What all members together may ask for; what is absent is not bounded.",
                {"cpu": texts.quantity("Cores."), "memory": texts.quantity("Bytes.")},
            ),
        },
        rule("!has(self.min) || !has(self.max) || self.min <= self.max", "must be at most max", ".min"),
    )


def _template() -> Schema:
    later = {
        name: plain("string", f"Of a later release: {words}.")
        if name in LATER_TEXTS
        else opaque(f"Of a later release: {words}.")
        for name, words in warm_pool.LATER_TEMPLATE.items()
    }
    return mapping(
        "What all members share with the Models that claim them; fields and defaults as in a Model.",
        {**{name: what_runs()[name] for name in warm_pool.OF_A_MODEL}, **later},
        *refused(warm_pool.LATER_TEMPLATE),
    )


def _size() -> Schema:
    most = warm_pool.MOST_MEMBERS
    good = f"type(self) == string ? self == '{AUTO}' : self >= 0 && self <= {most}"
    return {
        "description": f"Members that are kept ready, or {AUTO}: as many as arrivals and start times ask for; "
        f"default {AUTO}.",
        "x-kubernetes-int-or-string": True,
        "maxLength": warm_pool.LONGEST_SIZE,
        "x-kubernetes-validations": [rule(good, f"must be {AUTO} or a whole number from 0 to {most}")],
    }


def _status() -> Schema:
    """Types and no bounds: a status that is refused would leave people with an old one."""
    return record(
        "What is there.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that this speaks of.", format="int64"),
            "conditions": listing("Ready, and what it is made of.", make_condition()),
            "size": plain("integer", "Members that are wanted now.", format="int32"),
            "ready": plain("integer", "Members that can be claimed.", format="int32"),
            "starting": plain("integer", "Members that are not ready yet.", format="int32"),
            "claimed": plain("integer", "Claims under way.", format="int32"),
            "reasons": listing("Why so many are wanted.", plain("string")),
            "seed": record(
                "The Configuration of whose Pods the members are copies.",
                {
                    "ready": plain("boolean", "Whether Knative has made its Deployment."),
                    "message": plain("string", "Why it has not, and what helps."),
                },
            ),
        },
    )


def _columns() -> list[Object]:
    """What `kubectl get warmpools` shows."""
    return [
        column("Size", ".spec.size", f"Members that were asked for; empty: {AUTO}"),
        column("Wanted", ".status.size", "Members that are wanted now", "integer"),
        column("Ready", ".status.ready", "Members that can be claimed", "integer"),
        column("Claimed", ".status.claimed", "Claims under way", "integer"),
        column("Starting", ".status.starting", "Members that are not ready yet", "integer", wide=True),
        column("Seed", ".status.seed.message", "Why there are no members", wide=True),
        column("Age", ".metadata.creationTimestamp", "Since it was made", "date"),
    ]

"""The CustomResourceDefinition of Model. Pure.

`manifests/base/crds/models.yaml` holds the answer of `make_model_crd`; a test keeps them equal.
"""

from __future__ import annotations

from autoscaler.warmpool.claims.marks import SEED_PREFIX
from clusters.base.objects import MODEL, Object
from serving.crds.definition import column, make_definition, name_rules
from serving.crds.schema import RULES, Schema, plain, rule
from serving.crds.spec import make_spec, root_rules
from serving.crds.status import make_status_schema
from serving.types import faults


def make_model_crd() -> Object:
    """The CustomResourceDefinition as it is applied."""
    return make_definition(MODEL, make_model_schema(), _columns())


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


def _name_rules() -> list[Schema]:
    """A Model's name is a host as well, and must not be that of something else."""
    reserved = (
        rule(f"!self.metadata.name.startsWith('{prefix}')", faults.model_name_fault(prefix), ".metadata.name")
        for prefix in (*(f"{tag}-" for tag in faults.RESERVED_TAGS), SEED_PREFIX)
    )
    return [*reserved, *name_rules(faults.LONGEST_NAME)]


def _columns() -> list[Object]:
    """What `kubectl get models` shows; a column shows one value, so of the traffic the first part."""
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        column("Ready", f"{ready}.status", "Whether the newest version is ready and the split in force was seen"),
        column("Reason", f"{ready}.reason", "Why it is not"),
        column("Replicas", ".status.replicas.ready", "Replicas that are ready", "integer"),
        column("Desired", ".status.replicas.desired", "Replicas that are wanted", "integer"),
        column("Serving", ".status.traffic[0].revision", "The revision with the largest share"),
        column("Percent", ".status.traffic[0].percent", "Its share of the traffic", "integer"),
        column("Version", ".status.traffic[0].version", "What people call that version"),
        column("Rollout", ".status.rollout.phase", "How far the last rollout is"),
        column("URL", ".status.url", "Where the model answers"),
        column("Latest", ".status.latestCreatedRevision", "The newest revision", wide=True),
        column("Storage", ".spec.storageUri", "Where the model lies", wide=True),
        column("Age", ".metadata.creationTimestamp", "Since it was made", "date"),
    ]

"""The CustomResourceDefinition of Model. Pure.

`manifests/base/crds/models.yaml` is the result of `make_model_crd`; a test keeps them equal.
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
    """Return the CustomResourceDefinition."""
    return make_definition(MODEL, make_model_schema(), _columns())


def make_model_schema() -> Schema:
    """Return the structural schema of a Model."""
    return {
        "description": "A served model: its files, its scaling, and the traffic of its versions.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": plain("string"),
            "kind": plain("string"),
            "metadata": plain("object", properties={"name": plain("string")}),  # rules can refer to it
            "spec": make_spec(),
            "status": make_status_schema(),
        },
        RULES: [*_name_rules(), *root_rules()],
    }


def _name_rules() -> list[Schema]:
    """Return rules for the name, which is also a host name and must not be reserved."""
    reserved = (
        rule(f"!self.metadata.name.startsWith('{prefix}')", faults.model_name_fault(prefix), ".metadata.name")
        for prefix in (*(f"{tag}-" for tag in faults.RESERVED_TAGS), SEED_PREFIX)
    )
    return [*reserved, *name_rules(faults.LONGEST_NAME)]


def _columns() -> list[Object]:
    """Return the columns of `kubectl get models`. A column has one value, so traffic columns show the first target."""
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        column("Ready", f"{ready}.status", "Whether the newest version is ready and the traffic split is in force"),
        column("Reason", f"{ready}.reason", "Reason why it is not ready"),
        column("Replicas", ".status.replicas.ready", "Ready replicas", "integer"),
        column("Desired", ".status.replicas.desired", "Desired replicas", "integer"),
        column("Serving", ".status.traffic[0].revision", "Revision with the largest share of traffic"),
        column("Percent", ".status.traffic[0].percent", "Percentage of traffic to that revision", "integer"),
        column("Version", ".status.traffic[0].version", "Label of that version"),
        column("Rollout", ".status.rollout.phase", "Phase of the last rollout"),
        column("URL", ".status.url", "URL of the model"),
        column("Latest", ".status.latestCreatedRevision", "Newest revision", wide=True),
        column("Storage", ".spec.storageUri", "Address of the model's files", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since its creation", "date"),
    ]

"""What is written on the Pods of warm pools, and how it is read. Pure; the words are those of `marks`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, ENV_TOKEN, LABEL_POOL
from clusters.base.objects import (
    LABEL_TEMPLATE_HASH,
    Key,
    Object,
    annotations_of,
    controller_of,
    is_deleting,
    labels_of,
    namespace_of,
    parse_timestamp,
    timestamp,
)

FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Mark:
    """What `ANNOTATION_CLAIM` says: for which revision, of which Deployment (uid), by which process, since when."""

    revision: str
    deployment: str
    by: str
    at: datetime

    def to_json(self) -> str:
        """The annotation's text."""
        told = {"revision": self.revision, "deployment": self.deployment, "by": self.by, "at": timestamp(self.at)}
        return json.dumps(told, separators=(",", ":"))


def mark_of(pod: Object) -> Mark | None:
    """The Pod's claim; None when it has none, or one that no claimer of ours wrote."""
    try:
        found = json.loads(annotations_of(pod).get(ANNOTATION_CLAIM, ""))
        return Mark(str(found["revision"]), str(found["deployment"]), str(found["by"]), parse_timestamp(found["at"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def is_claimed(pod: Object) -> bool:
    """Whether the Pod was ever reserved, readably or not: it is nobody else's any more."""
    return bool(annotations_of(pod).get(ANNOTATION_CLAIM))


def is_active(pod: Object) -> bool:
    """Whether the Pod counts as a replica: it neither ended nor is being deleted."""
    return not is_deleting(pod) and (pod.get("status") or {}).get("phase") not in FINISHED


def is_adoptable(pod: Object) -> bool:
    """Whether a ReplicaSet has adopted the Pod, or may: it left its pool and carries a template's hash."""
    labels = labels_of(pod)
    return LABEL_POOL not in labels and LABEL_TEMPLATE_HASH in labels


def is_orphan(pod: Object) -> bool:
    """Whether the Pod came by a claim, left its pool, and nobody owns it: its ReplicaSet may just be about to."""
    return is_claimed(pod) and LABEL_POOL not in labels_of(pod) and controller_of(pod) is None


def is_half(pod: Object) -> bool:
    """Whether the Pod came by a claim and no ReplicaSet has it yet: somebody is to finish or undo that."""
    return is_claimed(pod) and (LABEL_POOL in labels_of(pod) or is_orphan(pod))


def restarts_of(pod: Object) -> int:
    """Restarts of all its containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(status.get("restartCount") or 0) for status in statuses)


def token_hash_of(pod: Object) -> str:
    """`ENV_TOKEN` as a container of the Pod has it; empty without."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == ENV_TOKEN:
                return str(variable.get("value") or "")
    return ""


def keys_by_claim(pod: Object) -> list[Key]:
    """The revision that a member is claimed for, as a controller's mapping from Pods to PodAutoscalers."""
    mark = mark_of(pod)
    return [Key(namespace_of(pod), mark.revision)] if mark is not None else []


def belongs_to(pod: Object, deployment: Object) -> bool:
    """Whether the Pod carries what the Deployment selects, the revision's uid: so no Pod of a namesake does."""
    wanted = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    return namespace_of(pod) == namespace_of(deployment) and wanted.items() <= dict(labels_of(pod)).items()


def same_template(replica_set: Object, deployment: Object) -> bool:
    """Whether the ReplicaSet is of the Deployment's present template (`EqualIgnoreHash` of Kubernetes)."""
    return _bare(replica_set["spec"]["template"]) == _bare(deployment["spec"]["template"])


def _bare(template: Object) -> tuple[Object, dict[str, str], dict[str, str]]:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != LABEL_TEMPLATE_HASH}
    return template["spec"], labels, dict(metadata.get("annotations") or {})

"""Readers of the marks on Pods of warm pools (`marks`). Pure."""

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
class ClaimRecord:
    """The value of `ANNOTATION_CLAIM`: the revision, its Deployment (uid), the claiming process, and the time."""

    revision: str
    deployment: str
    by: str
    at: datetime

    def to_json(self) -> str:
        """Return the annotation's text."""
        values = {"revision": self.revision, "deployment": self.deployment, "by": self.by, "at": timestamp(self.at)}
        return json.dumps(values, separators=(",", ":"))


def claim_record_of(pod: Object) -> ClaimRecord | None:
    """Return the Pod's claim; None if it has none, or an unreadable one."""
    try:
        found = json.loads(annotations_of(pod).get(ANNOTATION_CLAIM, ""))
        return ClaimRecord(
            str(found["revision"]), str(found["deployment"]), str(found["by"]), parse_timestamp(found["at"])
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def is_claimed(pod: Object) -> bool:
    """Return whether the Pod was ever reserved, readably or not, so that no other claim may use it."""
    return bool(annotations_of(pod).get(ANNOTATION_CLAIM))


def is_active(pod: Object) -> bool:
    """Return whether the Pod counts as a replica: it has not ended and is not being deleted."""
    return not is_deleting(pod) and (pod.get("status") or {}).get("phase") not in FINISHED


def is_adoptable(pod: Object) -> bool:
    """Return whether a ReplicaSet has adopted or may adopt the Pod: it left its pool and has a template hash."""
    labels = labels_of(pod)
    return LABEL_POOL not in labels and LABEL_TEMPLATE_HASH in labels


def is_orphan(pod: Object) -> bool:
    """Return whether the Pod was claimed, left its pool, and has no owner; its ReplicaSet may be about to adopt it."""
    return is_claimed(pod) and LABEL_POOL not in labels_of(pod) and controller_of(pod) is None


def is_unadopted(pod: Object) -> bool:
    """Return whether the Pod was claimed and no ReplicaSet owns it yet, so that the claim must be completed or
    undone.
    """
    return is_claimed(pod) and (LABEL_POOL in labels_of(pod) or is_orphan(pod))


def restarts_of(pod: Object) -> int:
    """Return the number of restarts of all its containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(status.get("restartCount") or 0) for status in statuses)


def token_hash_of(pod: Object) -> str:
    """Return the value of `ENV_TOKEN` in a container of the Pod; empty without one."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == ENV_TOKEN:
                return str(variable.get("value") or "")
    return ""


def keys_by_claim(pod: Object) -> list[Key]:
    """Return the revision for which a member is claimed, to map Pods to PodAutoscalers."""
    mark = claim_record_of(pod)
    return [Key(namespace_of(pod), mark.revision)] if mark is not None else []


def belongs_to(pod: Object, deployment: Object) -> bool:
    """Return whether the Deployment selects the Pod. The selector contains the revision's uid, which excludes former
    namesakes.
    """
    wanted = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    return namespace_of(pod) == namespace_of(deployment) and wanted.items() <= dict(labels_of(pod)).items()


def same_template(replica_set: Object, deployment: Object) -> bool:
    """Return whether the ReplicaSet has the Deployment's present template (`EqualIgnoreHash` of Kubernetes)."""
    return _bare(replica_set["spec"]["template"]) == _bare(deployment["spec"]["template"])


def _bare(template: Object) -> tuple[Object, dict[str, str], dict[str, str]]:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != LABEL_TEMPLATE_HASH}
    return template["spec"], labels, dict(metadata.get("annotations") or {})

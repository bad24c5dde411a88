"""Make ReplicaSets and Pods from their owner's template. Pure."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from typing import Any

from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_TEMPLATE_HASH,
    POD,
    REPLICA_SET,
    Object,
    annotations_of,
    name_of,
    namespace_of,
    owner_reference,
)

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names, without vowels to avoid words (Kubernetes `apimachinery/pkg/util/rand`)."""

HASH_LENGTH = 10  # as in Kubernetes; 27^10 values
SUFFIX_LENGTH = 5  # of a Pod's name, as in Kubernetes
NAME_LIMIT = 63  # a Pod's name is also its host name


def template_hash(template: Object) -> str:
    """Return a hash of the template, independent of the order of its keys."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    letters = []
    for _ in range(HASH_LENGTH):
        number, index = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[index])
    return "".join(letters)


def replicas_of(obj: Object) -> int:
    """Return `spec.replicas`, by default 1 as in Kubernetes."""
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def match_labels_of(obj: Object) -> dict[str, str]:
    """Return `spec.selector.matchLabels`."""
    return dict((obj["spec"].get("selector") or {}).get("matchLabels") or {})


def make_replica_set(deployment: Object) -> Object:
    """Return the ReplicaSet of the Deployment's current template."""
    template = copy.deepcopy(deployment["spec"]["template"])
    hashed = {LABEL_TEMPLATE_HASH: template_hash(template)}
    metadata: dict[str, Any] = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **hashed}
    return {
        "apiVersion": REPLICA_SET.api_version,
        "kind": REPLICA_SET.kind,
        "metadata": {
            "name": f"{name_of(deployment)}-{hashed[LABEL_TEMPLATE_HASH]}",
            "namespace": namespace_of(deployment),
            "labels": dict(metadata["labels"]),
            "annotations": dict(annotations_of(deployment)),
            "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
        },
        "spec": {
            "replicas": replicas_of(deployment),
            "selector": {"matchLabels": {**match_labels_of(deployment), **hashed}},
            "template": template,
        },
    }


def make_pod(replica_set: Object, name: str) -> Object:
    """Return a new Pod of the ReplicaSet."""
    template = replica_set["spec"]["template"]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": name,
            "generateName": f"{name_of(replica_set)}-",
            "namespace": namespace_of(replica_set),
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [owner_reference(REPLICA_SET, replica_set)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


def pod_name(replica_set: Object, source: random.Random) -> str:
    """Return a new Pod name. The caller chooses it so that it can expect the Pod before the creation."""
    suffix = "".join(source.choice(ALPHABET) for _ in range(SUFFIX_LENGTH))
    base = name_of(replica_set)[: NAME_LIMIT - SUFFIX_LENGTH - 1]
    return f"{base}-{suffix}"

"""What stands of one Model's life, without what differs from life to life: names, times, uids, counts of writes."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    LABEL_REVISION,
    MODEL,
    MODEL_EVENT,
    POD,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    Object,
    is_true,
    name_of,
)
from eventing.objects.outgoing import is_outgoing
from serving.types.annotations import LABEL_MODEL
from tests.faults.crash.ledger import Ledger

View = dict[str, Any]

WHOLE = (
    MODEL, SERVICE, CONFIGURATION, ROUTE, REVISION, POD_AUTOSCALER, SERVERLESS_SERVICE, DEPLOYMENT, INGRESS,
)  # fmt: skip
"""Kinds whose objects bear names that are always the same."""
ONE_GENERATION = frozenset({MODEL, CONFIGURATION, DEPLOYMENT})
"""Kinds whose generation counts effects; of others a crash may leave out, or let in, a state on the way."""
PASSING = frozenset(
    {
        "uid", "resourceVersion", "creationTimestamp", "managedFields", "annotations", "labels", "ownerReferences",
        "lastTransitionTime", "lastUpdateTime", "at", "promotedAt", "startedAt", "message", "starts", "lastSequence",
        "decisions", "generation", "observedGeneration",
    }
)  # fmt: skip
"""Fields that tell when and how, not what. Annotations of ours tell what was measured; labels hold uids and hashes."""
MOMENT = re.compile(r"@\d{4}-[0-9T:.-]+Z")
"""In the id of a judge's rollback: when it was."""
OF_A_ROLLOUT = ("phase", "candidate", "stable", "percent")


def view_of(ledger: Ledger, life: str) -> View:
    """By kind and name; `life` is the Model's name, which is written `MODEL`."""
    found: View = {}
    for kind in WHOLE:
        for obj in ledger.of_kind(kind):
            if _is_of(obj, life):
                found[f"{kind.kind} {name_of(obj)}"] = _normal(kind, obj)
    found["Pods"] = _counted(ledger, POD, life, lambda pod: f"ready={is_true(pod, 'Ready')}")
    found["ReplicaSets"] = _counted(ledger, REPLICA_SET, life, lambda one: f"{one['spec'].get('replicas', 0)} replicas")
    free = [pod for pod in ledger.of_kind(POD) if is_free_member(pod)]
    found["free members"] = sum(is_true(pod, "Ready") for pod in free)
    found["events"] = sorted(_phase(event) for event in ledger.of_kind(MODEL_EVENT) if _tells_of(event, life))
    view: View = json.loads(MOMENT.sub("@", json.dumps(found).replace(life, "MODEL")))
    return view


def difference(expected: View, found: View) -> str:
    """What of two views is not the same, for people."""
    lines = []
    for name in sorted(expected.keys() | found.keys()):
        before, after = expected.get(name), found.get(name)
        if before != after:
            lines.append(f"{name}\n  expected {json.dumps(before)}\n  found    {json.dumps(after)}")
    return "\n".join(lines)


def is_free_member(pod: Object) -> bool:
    """Whether it belongs to a warm pool, and to nobody else."""
    return LABEL_POOL in (pod["metadata"].get("labels") or {}) and not is_claimed(pod)


def _is_of(obj: Object, life: str) -> bool:
    return name_of(obj) == life or name_of(obj).startswith(f"{life}-0")


def _tells_of(event: Object, life: str) -> bool:
    return not is_outgoing(event) and (event["spec"].get("model") or {}).get("name") == life


def _phase(event: Object) -> str:
    status = event.get("status") or {}
    return f"{status.get('phase')} {status.get('revision', '')}"


def _counted(ledger: Ledger, kind: Kind, life: str, words: Any) -> dict[str, int]:
    """How many of each revision are so."""
    mine = [obj for obj in ledger.of_kind(kind) if obj["metadata"].get("labels", {}).get(LABEL_MODEL) == life]
    return dict(sorted(Counter(f"{obj['metadata']['labels'][LABEL_REVISION]} {words(obj)}" for obj in mine).items()))


def _normal(kind: Kind, obj: Object) -> Any:
    generation = obj["metadata"].get("generation") if kind in ONE_GENERATION else None
    return {"generation": generation, "spec": _scrubbed(obj.get("spec")), "status": _scrubbed(obj.get("status"))}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, list):
        return [_scrubbed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("rollout"), dict) and "phase" in value["rollout"]:
        value = {**value, "rollout": {name: value["rollout"].get(name) for name in OF_A_ROLLOUT}}
    if "matchLabels" in value:
        return {}
    return {name: _scrubbed(one) for name, one in value.items() if name not in PASSING}

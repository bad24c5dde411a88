"""Read results from Kubernetes objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.base.objects import Object, condition_of, name_of, namespace_of
from knodel.results.explanation import Explanation, ReplicaStart, ScalingDecision, StartStep
from knodel.results.model import (
    Model,
    ModelCondition,
    ModelHistory,
    ModelNotice,
    ModelVersion,
    ReplicaCounts,
    TrafficSplit,
    TrafficTarget,
)
from knodel.results.rollout import RolloutStep


def model_from(obj: Object, url: str) -> Model:
    """Return a Model object as a result; `url` is the address that clients reach."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready, replicas = condition_of(obj, "Ready") or {}, status.get("replicas") or {}
    is_ready = ready.get("status") == "True"
    reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "no status yet"
    return Model(
        name=name_of(obj),
        namespace=namespace_of(obj),
        ready=is_ready,
        reason="" if is_ready else reason,
        url=url,
        storage_uri=str(spec.get("storageUri") or ""),
        digest=str(spec.get("digest") or ""),
        format=str(status.get("modelFormat") or spec.get("modelFormat") or ""),
        version=str(spec.get("version") or ""),
        newest=str(status.get("latestCreatedRevision") or ""),
        newest_ready=str(status.get("latestReadyRevision") or ""),
        replicas=ReplicaCounts(*(int(replicas.get(name) or 0) for name in ("desired", "ready", "starting"))),
        traffic=traffic_from(obj),
        rollout=rollout_from(obj),
        conditions=tuple(
            ModelCondition(
                *(str(one.get(part) or "") for part in ("type", "status", "reason", "message", "lastTransitionTime"))
            )
            for one in status.get("conditions") or ()
        ),
        created_at=str(obj["metadata"].get("creationTimestamp") or ""),
        object=obj,
    )


def traffic_from(obj: Object) -> TrafficSplit:
    """Return the traffic split in the status of a Model."""
    return TrafficSplit(
        tuple(
            TrafficTarget(
                str(entry.get("revision") or ""),
                int(entry.get("percent") or 0),
                str(entry.get("version") or ""),
                str(entry.get("tag") or ""),
                str(entry.get("url") or ""),
            )
            for entry in (obj.get("status") or {}).get("traffic") or ()
        )
    )


def rollout_from(obj: Object) -> RolloutStep | None:
    """Return the last rollout of a Model; None if it had none."""
    status: Mapping[str, Any] = (obj.get("status") or {}).get("rollout") or {}
    if not status.get("phase"):
        return None
    verdict = status.get("verdict") or {}
    steps = ((obj.get("spec") or {}).get("rollout") or {}).get("steps") or ()
    return RolloutStep(
        model=name_of(obj),
        phase=str(status["phase"]),
        candidate=str(status.get("candidate") or ""),
        stable=str(status.get("stable") or ""),
        number=int(status.get("step") or 0) + 1,
        count=len(steps),
        percent=int(status.get("percent") or 0),
        started_at=str(status.get("startedAt") or ""),
        since=str(status.get("since") or ""),
        seen_at=str(status.get("seenAt") or ""),
        ended_at=str(status.get("endedAt") or ""),
        decision=str(verdict.get("decision") or ""),
        reasons=_texts(status.get("reasons") or verdict.get("reasons")),
        numbers=dict(verdict.get("numbers") or {}),
        status=status,
    )


def history_from(obj: Object) -> ModelHistory:
    """Return the versions in the status of a Model, oldest first."""
    return ModelHistory(
        name_of(obj),
        tuple(
            ModelVersion(
                revision=str(entry.get("revision") or ""),
                version=str(entry.get("version") or ""),
                outcome=str(entry.get("outcome") or ""),
                cause=str((entry.get("cause") or {}).get("by") or ""),
                at=str(entry.get("at") or ""),
                promoted_at=str(entry.get("promotedAt") or ""),
                digest=str(entry.get("digest") or ""),
                storage_uri=str(entry.get("storageUri") or ""),
            )
            for entry in (obj.get("status") or {}).get("history") or ()
        ),
    )


def notice_from(event: Object) -> ModelNotice:
    """Return a Kubernetes Event as a result; writers of `events.k8s.io` set only `eventTime`."""
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    kind, reason, message = (str(event.get(part) or "") for part in ("type", "reason", "message"))
    return ModelNotice(str(at), kind, reason, message, int(event.get("count") or 1))


def explanation_from(model: Model, rule: str, problems: Sequence[str], notes: Sequence[str]) -> Explanation:
    """Return the explanation of a Model, with its newest decisions and starts."""
    status = model.object.get("status") or {}
    return Explanation(
        model=model,
        rule=rule,
        decisions=tuple(
            ScalingDecision(
                str(one.get("at") or ""),
                str(one.get("revision") or ""),
                int(one.get("from") or 0),
                int(one.get("to") or 0),
                tuple(str(reason.get("message") or "") for reason in one.get("reasons") or ()),
            )
            for one in status.get("decisions") or ()
        ),
        starts=tuple(map(_start, status.get("starts") or ())),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _start(value: Mapping[str, Any]) -> ReplicaStart:
    took = value.get("milliseconds")
    return ReplicaStart(
        at=str(value.get("at") or ""),
        revision=str(value.get("revision") or ""),
        replica=str(value.get("pod") or ""),
        kind=str(value.get("kind") or ""),
        milliseconds=float(took) if took is not None else None,
        format=str(value.get("format") or ""),
        steps=tuple(
            StartStep(str(step.get("name") or ""), float(step.get("milliseconds") or 0))
            for step in value.get("steps") or ()
        ),
        server={str(name): float(number) for name, number in (value.get("server") or {}).items()},
    )


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values or ()))

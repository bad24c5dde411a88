"""Make the status of a Model from its objects and the progress of its rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from autoscaler.types import DECISIONS_ANNOTATION, read_entries
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.objects import Object, conditions_of, generation_of, name_of
from serving.crds.status import make_status_schema
from serving.makers import names
from serving.reconciler.adapters import adapters_state
from serving.reconciler.apply import ApplyOutcome
from serving.reconciler.conditions import configurations_state, failing_replica, pinned_message, routes_state
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan
from serving.reconciler.rollout.outcomes import last_sequence_after
from serving.reconciler.rollout.state import RolloutState, held_by
from serving.reconciler.rollouts import RolloutProgress
from serving.types.lifecycle import Lifecycle, State
from serving.types.model import Model, unknown_fields

KNOWN = frozenset(make_status_schema()["properties"])
"""Fields of a status that this release writes."""
MOST_DECISIONS = 20
MOST_STARTS = 10


def make_status(
    model: Model,
    result: ApplyOutcome,
    plan: Plan,
    progress: RolloutProgress,
    now: datetime,
    workers: State | None = None,
) -> Object:
    """Return the whole `status` of the Model. Fields that a newer release wrote are kept.

    `workers` is the state of the workers of its replicas, None without any.
    """
    world, former, rollout = result.world, model.object.get("status") or {}, progress.rollout
    latest = _latest(model, world)
    status = {
        "observedGeneration": model.generation,
        "conditions": _conditions(model, result, plan, rollout, now, workers),
        **_addresses(world, former),
        **latest,
        **_format(world.autoscalers, latest.get("latestReadyRevision", "")),
        "traffic": progress.traffic,
        "replicas": _replicas(world.autoscalers),
        "decisions": _newest(world.autoscalers, DECISIONS_ANNOTATION, MOST_DECISIONS),
        "starts": _newest(world.autoscalers, ANNOTATION_STARTS, MOST_STARTS),
        "rollout": rollout.to_json() if rollout is not None else {},
        "history": [entry.to_json() for entry in progress.history],
        "outbox": progress.outbox,
        "lastSequence": last_sequence_after(model, progress.outbox),
    }
    written = {name: value for name, value in status.items() if value or name == "observedGeneration"}
    return unknown_fields(KNOWN, former) | written


def make_invalid_status(model_obj: Object, message: str, now: datetime) -> Object:
    """Return the former status of an invalid Model, with `message` in its conditions."""
    former = model_obj.get("status") or {}
    lifecycle = Lifecycle(conditions_of(model_obj), now)
    lifecycle.mark_invalid(message)
    return {**former, "observedGeneration": generation_of(model_obj), "conditions": lifecycle.conditions()}


def make_broken_status(model_obj: Object, message: str, now: datetime) -> Object:
    """Return the former status of a Model that a bug of the platform keeps from being reconciled, with `message`."""
    status = model_obj.get("status")
    former = status if isinstance(status, dict) else {}  # the status itself may cause the error
    lifecycle = Lifecycle(conditions_of(model_obj), now)
    lifecycle.mark_broken(message)
    return {**former, "observedGeneration": generation_of(model_obj), "conditions": lifecycle.conditions()}


def _conditions(
    model: Model, result: ApplyOutcome, plan: Plan, rollout: RolloutState | None, now: datetime, workers: State | None
) -> list[Object]:
    world = result.world
    lifecycle = Lifecycle(conditions_of(model.object), now)
    _mark_objects(lifecycle, result, plan)
    lifecycle.mark_configurations(configurations_state(model, world, plan.situation))
    lifecycle.mark_routes(routes_state(model, world, plan.split))
    if plan.split.unknown:
        known = ", ".join(name_of(revision) for revision in world.revisions) or "none yet"
        lifecycle.mark_revision_missing(
            f"spec.traffic names {', '.join(plan.split.unknown)}, which this model does not have; known: {known}"
        )
    if model.spec.traffic:
        lifecycle.mark_traffic_pinned(pinned_message(model, plan.situation))
    if rollout is not None and (held := held_by(rollout)) is not None:
        lifecycle.mark_rollout_held(*held)
    if (adapters := adapters_state(model, world)) is not None:
        lifecycle.mark_adapters(adapters)
    if workers is not None:
        lifecycle.mark_workers(workers)
    reason, message = failing_replica(world)
    if reason:
        lifecycle.mark_replica_waiting(reason, message)
    return lifecycle.conditions()


def _mark_objects(lifecycle: Lifecycle, result: ApplyOutcome, plan: Plan) -> None:
    not_owned = [one for one in plan.foreign if not one.leaving]
    if plan.blocked is not None:
        lifecycle.mark_objects_refused(plan.blocked.reason, plan.blocked.message)
    elif not_owned:
        found = ", ".join(f"{one.kind.kind} {one.name}" for one in not_owned)
        lifecycle.mark_not_owned(
            f"{found} already exists and does not belong to this model: delete it, or rename the model"
        )
    elif plan.foreign:
        lifecycle.mark_objects_waiting("the objects of a deleted model of this name are still being deleted")
    elif result.refusal is not None:
        lifecycle.mark_objects_refused(result.refusal.reason, result.refusal.message)
    else:
        lifecycle.mark_objects_applied()


def _addresses(world: World, former: Object) -> Object:
    """Return `url`, `address` and `addresses` of the Route, or the former ones while the Route has none.

    Knative's event senders use the first of `addresses`, or else `address`. As in Knative's own kinds, that is the
    address inside the cluster.
    """
    route = world.route
    status = (route.get("status") if route is not None and world.is_ours(route) else None) or {}
    url, local = status.get("url"), (status.get("address") or {}).get("url")
    if not url:
        return {name: former[name] for name in ("url", "address", "addresses") if name in former}
    addresses = [{"name": "cluster-local", "url": local}] if local else []
    if url != local:
        addresses.append({"name": "public", "url": url})
    return {"url": url, "address": {"url": local or url}, "addresses": addresses}


def _latest(model: Model, world: World) -> Object:
    """Return the newest revisions; with variants those of the first Configuration by name, as in the history."""
    configuration = world.configurations.get(min(names.configurations(model)))
    ours = configuration is not None and world.is_ours(configuration)  # that of a deleted Model may still exist
    status = (configuration.get("status") if configuration is not None and ours else None) or {}
    found = {
        "latestCreatedRevision": status.get("latestCreatedRevisionName"),
        "latestReadyRevision": status.get("latestReadyRevisionName"),
    }
    return {name: value for name, value in found.items() if value}


def _format(autoscalers: Iterable[Object], revision: str) -> Object:
    """Return `modelFormat`: the format that the newest start of this revision found."""
    starts = [one for autoscaler in autoscalers if name_of(autoscaler) == revision
              for one in read_entries(autoscaler, ANNOTATION_STARTS)]  # fmt: skip
    found = [one["format"] for one in starts if isinstance(one.get("format"), str)]
    return {"modelFormat": found[-1]} if found else {}


def _replicas(autoscalers: Iterable[Object]) -> Object:
    """Return the sums over all revisions. Replicas that are desired and do not exist yet count as starting."""
    desired = ready = starting = 0
    for autoscaler in autoscalers:
        status = autoscaler.get("status") or {}
        wanted, actual = max(0, int(status.get("desiredScale") or 0)), int(status.get("actualScale") or 0)
        desired, ready, starting = desired + wanted, ready + actual, starting + max(0, wanted - actual)
    return {"desired": desired, "ready": ready, "starting": starting}


def _newest(autoscalers: Iterable[Object], annotation: str, most: int) -> list[Object]:
    """Return the newest scaling decisions, or starts, of all revisions, oldest first, each with its revision."""
    found = [
        {"revision": name_of(autoscaler), **entry}
        for autoscaler in autoscalers
        for entry in read_entries(autoscaler, annotation)
    ]
    return sorted(found, key=lambda entry: str(entry.get("at", "")))[-most:]

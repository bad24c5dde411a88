"""The status of a Model from its world: what people and the command read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from autoscaler.types import DECISIONS_ANNOTATION, read_notes
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.objects import Object, conditions_of, generation_of, is_true, name_of, timestamp
from serving.crds.status import make_status_schema
from serving.makers import names
from serving.reconciler.apply import Outcome
from serving.reconciler.conditions import configurations_state, pinned_message, routes_state, trouble_of
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan
from serving.reconciler.rollout.held import held_by
from serving.reconciler.rollout.history import advance
from serving.reconciler.rollout.outcomes import last_sequence_after, outbox_after
from serving.reconciler.rollout.state import RolloutState
from serving.reconciler.rollout.versions import Version, shares_of, version_with
from serving.reconciler.rollouts import NOT_LOOKED, Looked, cause_of, rollout_after, settled_shares
from serving.types.lifecycle import Lifecycle
from serving.types.model import Model, history_of, unknown_to

KNOWN = frozenset(make_status_schema()["properties"])
"""Fields of a status that this version of ours writes."""
MOST_DECISIONS = 20
MOST_STARTS = 10


def make_status(model: Model, outcome: Outcome, plan: Plan, now: datetime, looked: Looked = NOT_LOOKED) -> Object:
    """The whole `status` of the Model; `looked` is what the judge of its rollout saw in this pass."""
    world, former = outcome.world, model.object.get("status") or {}
    latest = _latest(model, world)
    traffic = _traffic(world, former, plan.situation.versions)
    shares = shares_of(traffic, plan.situation.versions)
    rollout = rollout_after(model, plan, shares, looked, now)
    history = advance(
        history_of(model.object),
        plan.situation.versions,
        settled_shares(shares, rollout),
        cause_of(model, plan.situation, rollout),
        timestamp(now),
        coming=rollout.candidate if rollout is not None and rollout.runs else "",
        refused=rollout.candidate if rollout is not None and rollout.phase == "RolledBack" else "",
    )
    outbox = outbox_after(model, rollout, history, now)
    status = {
        "observedGeneration": model.generation,
        "conditions": _conditions(model, outcome, plan, rollout, now),
        **_addresses(world, former),
        **latest,
        **_format(world.autoscalers, latest.get("latestReadyRevision", "")),
        "traffic": traffic,
        "replicas": _replicas(world.autoscalers),
        "decisions": _newest(world.autoscalers, DECISIONS_ANNOTATION, MOST_DECISIONS),
        "starts": _newest(world.autoscalers, ANNOTATION_STARTS, MOST_STARTS),
        "rollout": rollout.to_json() if rollout is not None else {},
        "history": [entry.to_json() for entry in history],
        "outbox": outbox,
        "lastSequence": last_sequence_after(model, outbox),
    }
    written = {name: value for name, value in status.items() if value or name == "observedGeneration"}
    return unknown_to(KNOWN, former) | written  # a newer version of ours finds again what it has written


def make_invalid_status(model_obj: Object, message: str, now: datetime) -> Object:
    """The status of a Model that cannot be read: as it was, with the reason."""
    former = model_obj.get("status") or {}
    lifecycle = Lifecycle(conditions_of(model_obj), now)
    lifecycle.mark_invalid(message)
    return {**former, "observedGeneration": generation_of(model_obj), "conditions": lifecycle.conditions()}


def make_broken_status(model_obj: Object, message: str, now: datetime) -> Object:
    """The status of a Model whose passes fail by a fault of ours: as it was, with the reason."""
    status = model_obj.get("status")
    former = status if isinstance(status, dict) else {}  # what is wrong may be the status itself
    lifecycle = Lifecycle(conditions_of(model_obj), now)
    lifecycle.mark_broken(message)
    return {**former, "observedGeneration": generation_of(model_obj), "conditions": lifecycle.conditions()}


def _conditions(
    model: Model, outcome: Outcome, plan: Plan, rollout: RolloutState | None, now: datetime
) -> list[Object]:
    world = outcome.world
    lifecycle = Lifecycle(conditions_of(model.object), now)
    _mark_objects(lifecycle, outcome, plan)
    lifecycle.mark_configurations(configurations_state(model, world, plan.situation))
    lifecycle.mark_routes(routes_state(model, world, plan.split))
    if plan.split.unknown:
        known = ", ".join(name_of(revision) for revision in world.revisions) or "none yet"
        lifecycle.mark_revision_missing(
            f"spec.traffic names {', '.join(plan.split.unknown)}, no revision of this model; known: {known}"
        )
    if model.spec.traffic:
        lifecycle.mark_traffic_pinned(pinned_message(model, plan.situation))
    if rollout is not None and (held := held_by(rollout)) is not None:
        lifecycle.mark_rollout_held(*held)
    reason, message = trouble_of(world)
    if reason:
        lifecycle.mark_replica_waiting(reason, message)
    return lifecycle.conditions()


def _mark_objects(lifecycle: Lifecycle, outcome: Outcome, plan: Plan) -> None:
    strangers = [one for one in plan.foreign if not one.leaving]
    if plan.obstacle is not None:
        lifecycle.mark_objects_refused(plan.obstacle.reason, plan.obstacle.message)
    elif strangers:
        found = ", ".join(f"{one.kind.kind} {one.name}" for one in strangers)
        lifecycle.mark_not_owned(f"{found} is there already and not of this model: delete it, or rename the model")
    elif plan.foreign:
        lifecycle.mark_objects_waiting("the objects of a deleted model of this name are still going")
    elif outcome.refusal is not None:
        lifecycle.mark_objects_refused(outcome.refusal.reason, outcome.refusal.message)
    else:
        lifecycle.mark_objects_applied()


def _traffic(world: World, former: Object, versions: Sequence[Version]) -> list[Object]:
    """Who gets what, as last seen at the gateway: what the Route says while it is ready, else what was.

    The largest share stands first: `kubectl get models` has room for one.
    """
    route = world.route
    if route is None or not world.is_ours(route) or not is_true(route, "Ready"):
        return list(former.get("traffic") or ())
    found: dict[tuple[str, str], Object] = {}
    for entry in route["status"].get("traffic") or ():
        key = (entry["revisionName"], entry.get("tag", ""))
        percent = int(entry.get("percent") or 0) + found.get(key, {"percent": 0})["percent"]
        version = version_with(versions, entry["revisionName"])
        parts = {
            "revision": entry["revisionName"],
            "version": version.version if version is not None else "",
            "percent": percent,
            "tag": entry.get("tag", ""),
            "url": entry.get("url", ""),
        }
        found[key] = {name: value for name, value in parts.items() if value != ""}
    kept = [entry for entry in found.values() if entry["percent"] or "tag" in entry]
    return sorted(kept, key=lambda entry: -entry["percent"])


def _addresses(world: World, former: Object) -> Object:
    """`url`, `address` and `addresses` of the Route; they stay while it is away for a moment.

    Knative's senders take the first of `addresses`, or else `address`: that inside the cluster, as of its own kinds.
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
    """The newest revisions, of the first Configuration by name when there are variants, as history names them."""
    configuration = world.configurations.get(min(names.configurations(model)))
    ours = configuration is not None and world.is_ours(configuration)  # a predecessor's may still be there
    status = (configuration.get("status") if configuration is not None and ours else None) or {}
    found = {
        "latestCreatedRevision": status.get("latestCreatedRevisionName"),
        "latestReadyRevision": status.get("latestReadyRevisionName"),
    }
    return {name: value for name, value in found.items() if value}


def _format(autoscalers: Iterable[Object], revision: str) -> Object:
    """`modelFormat`: what the server of this revision's newest start found."""
    starts = [one for autoscaler in autoscalers if name_of(autoscaler) == revision
              for one in read_notes(autoscaler, ANNOTATION_STARTS)]  # fmt: skip
    found = [one["format"] for one in starts if isinstance(one.get("format"), str)]
    return {"modelFormat": found[-1]} if found else {}


def _replicas(autoscalers: Iterable[Object]) -> Object:
    """Sums over all revisions; what is desired and not there yet is starting."""
    desired = ready = starting = 0
    for autoscaler in autoscalers:
        status = autoscaler.get("status") or {}
        wanted, actual = max(0, int(status.get("desiredScale") or 0)), int(status.get("actualScale") or 0)
        desired, ready, starting = desired + wanted, ready + actual, starting + max(0, wanted - actual)
    return {"desired": desired, "ready": ready, "starting": starting}


def _newest(autoscalers: Iterable[Object], annotation: str, most: int) -> list[Object]:
    """The newest scaling decisions, or starts, of all revisions, oldest first, each with its revision."""
    found = [
        {"revision": name_of(autoscaler), **entry}
        for autoscaler in autoscalers
        for entry in read_notes(autoscaler, annotation)
    ]
    return sorted(found, key=lambda entry: str(entry.get("at", "")))[-most:]

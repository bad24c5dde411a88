"""Derive a Model's conditions for its newest version and its traffic from Knative's objects. Pure.

The status of a Knative object counts only when the object has the present version (label) or traffic targets, and has
observed them. Until then the condition is Unknown, and never the result of a former spec.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.reconciler.status import start_failure_of, start_progress_of
from clusters.base.objects import Object, condition_of, is_true, labels_of, name_of
from serving.makers import names
from serving.reconciler.observe import World, has_observed, has_taken_over
from serving.reconciler.rollout.split import Situation, Split
from serving.reconciler.rollout.versions import PASSING
from serving.types.annotations import LABEL_GENERATION
from serving.types.lifecycle import DEPLOYING, GOOD, RECOVERING, State
from serving.types.model import Model

HINTS = {"ExitCode137": "(killed, usually because it ran out of memory: raise resources.memory)"}
"""Explanations of Knative's reasons."""


REVISION_MISSING = "RevisionMissing"
"""Knative's reason of a Route with a target Revision that does not exist or is not ready."""


def configurations_state(model: Model, world: World, situation: Situation) -> State:
    """Return the state of the newest version over all its Configurations: the worst one.

    A final failure, which only a change of the Model ends, is worse than a recovery, and that is worse than a deploy in
    progress. The state is good only when the Revisions are observed to be ready too: the traffic split uses them, and
    Configurations may be observed earlier. A version whose variants loaded different bytes is never good.
    """
    failure = situation.newest.failure if situation.newest is not None else None
    if failure is not None and failure.final:
        return State("False", failure.reason, f"{failure.revision}: {failure.message}")
    states = [_configuration_state(world, name, situation.generation) for name in names.configurations(model)]
    bad = [state for state in states if state.status != "True"]
    if bad:
        return min(bad, key=lambda state: (state.status != "False", state.reason == RECOVERING))
    if situation.newest is None or not situation.newest.ready:
        return State("Unknown", DEPLOYING, "not all Revisions of the newest version are ready yet")
    return GOOD


def routes_state(model: Model, world: World, split: Split) -> State:
    """Return the state of the Route, when it has the present split and has observed it."""
    route = world.route
    if route is None:
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} does not exist yet")
    has_split = split.unknown or _parts(route["spec"].get("traffic") or ()) == _parts(split.targets)
    if not has_split or not has_observed(route):  # with unknown revisions the split stays unchanged
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} does not have the new traffic split yet")
    state = _state_of(route)
    if state.status == "False" and state.reason == REVISION_MISSING and _are_ready(model, world, split):
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} has not observed its ready revisions yet")
    status = route.get("status") or {}
    is_local = bool(status.get("url")) and status["url"] == (status.get("address") or {}).get("url")
    if state.status == "True" and is_local != (model.spec.visibility == "cluster-local"):
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} is not {model.spec.visibility} yet")
    if state.status == "True" and not split.unknown and not _has_migrated(model, world, route, split):
        return State("Unknown", "TrafficNotMigrated", "traffic is not yet on the latest ready revision")
    return state


def failing_replica(world: World) -> tuple[str, str]:
    """Return reason and message of a replica that does not start, of the newest such revision; both may be empty."""

    def age(obj: Object) -> tuple[str, str]:
        return str(obj["metadata"].get("creationTimestamp", "")), name_of(obj)

    for autoscaler in sorted(world.autoscalers, key=age, reverse=True):
        reason, message = start_failure_of(autoscaler)
        if reason:
            return reason, f"{name_of(autoscaler)}: {message}"
    return "", ""


def pinned_message(model: Model, situation: Situation) -> str:
    """Return the split of `spec.traffic`, and how the newest version gets traffic when it has none."""
    shares = ", ".join(f"{entry.revision or 'latest'}={entry.percent}" for entry in model.spec.traffic)
    newest = situation.versions[-1] if situation.versions else None
    if newest is None or any(
        entry.percent > 0 and (entry.revision is None or entry.revision in newest) for entry in model.spec.traffic
    ):
        return f"spec.traffic sets the split: {shares}"
    remedy = f": `knodel promote {model.name}` gives it all traffic" if newest.ready else ", and is not ready"
    return f"spec.traffic sets the split: {shares}; {newest.revision} gets no traffic{remedy}"


def _configuration_state(world: World, name: str, generation: str) -> State:
    configuration = world.configurations.get(name)
    if configuration is None:
        return State("Unknown", DEPLOYING, f"Configuration {name} does not exist yet")
    if not has_taken_over(configuration, generation):
        return State("Unknown", DEPLOYING, f"Configuration {name} does not have the new version yet")
    state = _state_of(configuration)
    status = configuration.get("status") or {}
    created = status.get("latestCreatedRevisionName")
    newest = next((revision for revision in world.revisions if name_of(revision) == created), None)
    if state.status == "True" or newest is None or labels_of(newest).get(LABEL_GENERATION) != generation:
        return state
    news = next((start_progress_of(one) for one in world.autoscalers if name_of(one) == created), "")
    return _revision_state(newest, state, news, was_ready=status.get("latestReadyRevisionName") == created)


def _revision_state(revision: Object, of_configuration: State, news: str, *, was_ready: bool) -> State:
    """Return the state of a Revision, which has more details than its Configuration's and fails earlier.

    Without a message of its own, the Revision gets `news`: what its Pods wait for, or their progress. A Revision that
    `was_ready` and fails, as when its only replica crashes, is recovering: Kubernetes restarts its containers. When the
    Revision is ready, a failure of its Configuration counts if it concerns another Revision, which was refused.
    """
    own, name = _state_of(revision), name_of(revision)
    if own.status == "True":
        if of_configuration.status == "False" and f'"{name}"' not in of_configuration.message:
            return of_configuration
        return State("Unknown", DEPLOYING, f"{name} is ready, but its Configuration has not observed that yet")
    message = " ".join(filter(None, (own.message.strip() or news, HINTS.get(own.reason, ""))))
    if own.reason in PASSING:
        return State("Unknown", own.reason, _joined(name, message))
    if own.status == "False" and was_ready:
        return State("False", RECOVERING, _joined(name, own.reason, message))
    return State(own.status, own.reason, _joined(name, message))


def _joined(*words: str) -> str:
    return ": ".join(filter(None, words))


def _state_of(obj: Object) -> State:
    ready = condition_of(obj, "Ready") or {}
    if ready.get("status") == "True":
        return GOOD
    reason, message = ready.get("reason") or DEPLOYING, ready.get("message", "")
    return State("False", reason, message) if ready.get("status") == "False" else State("Unknown", reason, message)


def _are_ready(model: Model, world: World, split: Split) -> bool:
    """Return whether all targets of the split are ready: then a Route with a missing revision is outdated."""
    ready = {name_of(revision) for revision in world.revisions if is_true(revision, "Ready")}
    return all(_revision_of(target, model, world, "latestCreatedRevisionName") in ready for target in split.targets)


def _revision_of(target: Object, model: Model, world: World, latest: str) -> str:
    """Return the Revision of a target, or the one in the field `latest` of the target's Configuration."""
    configuration = world.configurations.get(target.get("configurationName") or names.configuration(model)) or {}
    return str(target.get("revisionName") or (configuration.get("status") or {}).get(latest, ""))


def _has_migrated(model: Model, world: World, route: Object, split: Split) -> bool:
    """Return whether targets without a revision are on the latest ready one: a Route is ready with former ones too."""
    wanted = [
        {**target, "revisionName": _revision_of(target, model, world, "latestReadyRevisionName")}
        for target in split.targets
    ]
    return _parts(wanted) == _parts((route.get("status") or {}).get("traffic") or ())


def _parts(targets: Iterable[Object]) -> list[tuple[str, int, str]]:
    """Return revision, percent and tag of each target. A Service adds its Configuration to targets without one."""
    return [(one.get("revisionName", ""), int(one.get("percent") or 0), one.get("tag", "")) for one in targets]

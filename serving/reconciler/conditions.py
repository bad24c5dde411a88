"""How the newest version and the traffic of a Model are, read from Knative's objects. Pure.

A status of Knative's speaks of our wish only when its object carries the wish (label of the version, traffic targets)
and has observed it; until then the answer is Unknown, never the answer to an older wish.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.reconciler.status import news_in, trouble_in
from clusters.base.objects import Object, condition_of, is_true, labels_of, name_of
from serving.makers import names
from serving.reconciler.observe import World, has_observed, has_taken_over
from serving.reconciler.rollout.split import Situation, Split
from serving.reconciler.rollout.versions import PASSING, Version
from serving.types.annotations import LABEL_GENERATION
from serving.types.lifecycle import DEPLOYING, GOOD, RECOVERING, State
from serving.types.model import Model

HINTS = {"ExitCode137": "(killed, most often for want of memory: raise resources.memory)"}
"""What people should know of a reason of Knative's."""


REVISION_MISSING = "RevisionMissing"
"""Knative's reason of a Route that leads to a Revision which is not there, or not ready."""


def configurations_state(model: Model, world: World, situation: Situation) -> State:
    """The newest version in all its Configurations: the first that failed for good, else that recovers, else is under
    way: one that recovers hides no failure that nothing but a change of the Model ends.

    Good only when its Revisions were seen ready too: the split is made of them, and Configurations may be seen earlier.
    Variants that loaded different bytes are no version, however ready they are.
    """
    failure = situation.newest.failure if situation.newest is not None else None
    if failure is not None and failure.final:
        return State("False", failure.reason, f"{failure.revision}: {failure.message}")
    states = [_configuration_state(world, name, situation.generation) for name in names.configurations(model)]
    bad = [state for state in states if state.status != "True"]
    if bad:
        return min(bad, key=_rank)
    if situation.newest is None or not situation.newest.ready:
        return State("Unknown", DEPLOYING, "the newest version's Revisions are not all ready yet")
    return GOOD


def _rank(state: State) -> int:
    """0 for the worst."""
    if state.status == "False":
        return 1 if state.reason == RECOVERING else 0
    return 2


def routes_state(model: Model, world: World, split: Split) -> State:
    """The Route, once it carries the split and has observed it."""
    route = world.route
    if route is None:
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} is not made yet")
    if not _carries(route, split) or not has_observed(route):
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} has not taken over the traffic split yet")
    state = _state_of(route)
    if state.status == "False" and state.reason == REVISION_MISSING and _are_ready(model, world, split):
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} has not seen yet that its revisions are ready")
    if state.status == "True" and _is_local(route) != (model.spec.visibility == "cluster-local"):
        return State("Unknown", DEPLOYING, f"Route {names.route(model)} is not {model.spec.visibility} yet")
    if state.status == "True" and not split.unknown and not _has_migrated(model, world, route, split):
        return State("Unknown", "TrafficNotMigrated", "traffic is not yet on the latest ready revision")
    return state


def trouble_of(world: World) -> tuple[str, str]:
    """Reason and message of a replica that does not start, of the newest revision with one; both empty without."""
    for autoscaler in sorted(world.autoscalers, key=_age, reverse=True):
        reason, message = trouble_in(autoscaler)
        if reason:
            return reason, f"{name_of(autoscaler)}: {message}"
    return "", ""


def _age(obj: Object) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp", "")), name_of(obj)


def pinned_message(model: Model, situation: Situation) -> str:
    """What `spec.traffic` does, and how the newest version gets traffic when it has none."""
    shares = ", ".join(f"{entry.revision or 'latest'}={entry.percent}" for entry in model.spec.traffic)
    newest = situation.versions[-1] if situation.versions else None
    if newest is None or any(_gets_traffic(newest, entry.revision, entry.percent) for entry in model.spec.traffic):
        return f"spec.traffic decides: {shares}"
    remedy = f": `knodel promote {model.name}` gives it all" if newest.ready else ", and is not ready"
    return f"spec.traffic decides: {shares}; {newest.revision} gets nothing{remedy}"


def _gets_traffic(version: Version, revision: str | None, percent: int) -> bool:
    return percent > 0 and (revision is None or revision in version)


def _configuration_state(world: World, name: str, generation: str) -> State:
    configuration = world.configurations.get(name)
    if configuration is None:
        return State("Unknown", DEPLOYING, f"Configuration {name} is not made yet")
    if not has_taken_over(configuration, generation):
        return State("Unknown", DEPLOYING, f"Configuration {name} has not taken over the new version yet")
    state = _state_of(configuration)
    status = configuration.get("status") or {}
    created = status.get("latestCreatedRevisionName")
    newest = next((revision for revision in world.revisions if name_of(revision) == created), None)
    if state.status == "True" or newest is None or labels_of(newest).get(LABEL_GENERATION) != generation:
        return state
    news = next((news_in(one) for one in world.autoscalers if name_of(one) == created), "")
    return _revision_state(newest, state, news, was_ready=status.get("latestReadyRevisionName") == created)


def _revision_state(revision: Object, told: State, news: str, *, was_ready: bool) -> State:
    """The Revision's own words, which say more than its Configuration's; a failure as soon as it is known.

    While it says nothing, `news`: what its Pods wait for, or how far they are. One that `was_ready` once and fails, as
    when its only replica crashes, is none that cannot become ready: Kubernetes starts its containers again. When it is
    ready, what its Configuration has `told` stands if it is of something else: a next Revision that was refused.
    """
    own, name = _state_of(revision), name_of(revision)
    if own.status == "True":
        if told.status == "False" and f'"{name}"' not in told.message:
            return told
        return State("Unknown", DEPLOYING, f"{name} is ready, which its Configuration has not seen yet")
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


def _carries(route: Object, split: Split) -> bool:
    """Whether the Route asks for these targets; the Service fills in its Configuration where none is named."""
    if split.unknown:
        return True  # the split stays as it is
    return _parts(route["spec"].get("traffic") or ()) == _parts(split.targets)


def _are_ready(model: Model, world: World, split: Split) -> bool:
    """Whether all that the split leads to is ready: a Route that misses a revision speaks of the one before."""
    ready = {name_of(revision) for revision in world.revisions if is_true(revision, "Ready")}
    return all(_revision_of(target, model, world, "latestCreatedRevisionName") in ready for target in split.targets)


def _revision_of(target: Object, model: Model, world: World, latest: str) -> str:
    """The Revision that a target names, or the one in the field `latest` of the Configuration that it follows."""
    configuration = world.configurations.get(target.get("configurationName") or names.configuration(model)) or {}
    return str(target.get("revisionName") or (configuration.get("status") or {}).get(latest, ""))


def _has_migrated(model: Model, world: World, route: Object, split: Split) -> bool:
    """Whether what floats is on the latest ready revisions: a Route is ready with the former ones as well."""
    wanted = [
        {**target, "revisionName": _revision_of(target, model, world, "latestReadyRevisionName")}
        for target in split.targets
    ]
    return _parts(wanted) == _parts((route.get("status") or {}).get("traffic") or ())


def _is_local(route: Object) -> bool:
    """Whether the Route is reached inside the cluster alone. A change of its label raises no generation."""
    status = route["status"]
    return bool(status.get("url")) and status["url"] == (status.get("address") or {}).get("url")


def _parts(targets: Iterable[Object]) -> list[tuple[str, int, str]]:
    return [(one.get("revisionName", ""), int(one.get("percent") or 0), one.get("tag", "")) for one in targets]

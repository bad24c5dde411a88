"""Operations on the traffic and the rollouts of models."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from clusters.base.objects import Object, condition_of, generation_of
from knodel.operations.core import ClientCore, check_name, check_timeout
from knodel.results.model import Model, TrafficSplit
from knodel.results.rollout import RolloutStep
from serving.client.effects import Call, Item, Items, each
from serving.client.errors import DoesNotExist, TimedOut, UsageError

ALL = 100  # percent
TIMEOUT = 60.0  # s for a change to be applied


def traffic(
    core: ClientCore, name: str, split: Mapping[str, int] | None = None, *, timeout: float = TIMEOUT
) -> Call[TrafficSplit]:
    """Return the traffic split of a model; with `split`, set it first and wait until it is applied.

    `split` has a percentage for each revision, version label, or `latest`, the latest ready version. The percentages
    sum to 100. Raises NotFound, Invalid, Conflict, TimedOut after `timeout` seconds.

    Example:
        client.traffic("iris", {"iris-00001": 90, "latest": 10})
    """
    from knodel.results.reading import traffic_from
    from serving.client.models.rollouts import set_traffic

    if split is None:
        return traffic_from((yield from core.get(name)))
    if not isinstance(split, Mapping) or not all(
        isinstance(percent, int) and not isinstance(percent, bool) for percent in split.values()
    ):
        raise UsageError('the split is not a dict of percentages: give one such as {"iris-00001": 90, "latest": 10}')
    api = yield from core.calls(check_timeout(timeout))
    obj = yield from set_traffic(api, check_name(name), core.namespace, timeout, list(split.items()))
    return traffic_from(obj)


def rollout(core: ClientCore, name: str, *, timeout: float | None = None) -> Items[RolloutStep]:
    """Yield the state of a model's rollout now and after each change, until the rollout has ended.

    The last value has the outcome: Promoted, RolledBack or Failed. A rollback raises nothing. The first version of a
    model with `spec.rollout` has all traffic at once, so it has no steps. Raises NotFound, also for a model without a
    rollout, and TimedOut after `timeout` seconds.

    Example:
        for step in client.rollout("iris"):
            print(step.percent, step.phase, step.reasons)
    """
    from knodel.results.reading import rollout_from
    from serving.client.models.waiting import states

    api = yield from core.calls()
    models = states(api, check_name(name), core.namespace, None if timeout is None else check_timeout(timeout))
    last: RolloutStep | None = None

    def show(model: Object) -> Generator[Item[RolloutStep], None, bool]:
        nonlocal last
        step = rollout_from(model)
        if _starts(model, step):
            return False
        if step is None:
            if (model.get("spec") or {}).get("rollout") is not None and _has_all_traffic(model):
                return True
            raise DoesNotExist(f"model {name} has no rollout: client.deploy(…, rollout=True) starts one")
        if last is None or _seen(step) != _seen(last):
            yield Item(step)
            last = step
        return step.ended

    if not (yield from each(models, show)):
        raise TimedOut(f"the rollout of model {name} has not ended within {timeout:g} s")


def _starts(model: Object, step: RolloutStep | None) -> bool:
    """Return whether a rollout of the newest version has yet to begin. Pure."""
    spec, status = model.get("spec") or {}, model.get("status") or {}
    if spec.get("rollout") is None or spec.get("traffic") or spec.get("canaryTrafficPercent") is not None:
        return False
    if int(status.get("observedGeneration") or 0) < generation_of(model):
        return True
    newest, ready = status.get("latestCreatedRevision"), condition_of(model, "ConfigurationsReady") or {}
    if ready.get("status") == "False" or (step is not None and step.candidate == newest):
        return False
    return ready.get("status") == "Unknown" or not _has_all_traffic(model)


def _has_all_traffic(model: Object) -> bool:
    """Return whether the newest version has all traffic. Pure."""
    status = model.get("status") or {}
    newest = status.get("latestCreatedRevision")
    return any(one.get("revision") == newest and one.get("percent") == ALL for one in status.get("traffic") or ())


def _seen(step: RolloutStep) -> tuple[Any, ...]:
    return step.candidate, step.phase, step.number, step.percent, step.seen_at, step.decision, step.reasons


def promote(core: ClientCore, name: str, *, timeout: float = TIMEOUT) -> Call[Model]:
    """Send all traffic to the latest ready version, ending a pin, a canary or a rollout; return the model.

    Raises NotFound, Conflict, TimedOut after `timeout` seconds.
    """
    from serving.client.models import rollouts

    return (yield from _changed(core, name, timeout, rollouts.promote))


def pause(core: ClientCore, name: str, *, timeout: float = TIMEOUT) -> Call[Model]:
    """Pause the rollout of a model at its step; a failing version is still rolled back. Raises as `promote`."""
    from serving.client.models import rollouts

    return (yield from _changed(core, name, timeout, rollouts.pause))


def resume(core: ClientCore, name: str, *, timeout: float = TIMEOUT) -> Call[Model]:
    """Resume the paused rollout of a model with the rest of its step. Raises as `promote`."""
    from serving.client.models import rollouts

    return (yield from _changed(core, name, timeout, rollouts.resume))


def abort(core: ClientCore, name: str, *, timeout: float = TIMEOUT) -> Call[Model]:
    """Abort the rollout of a model and send all traffic to the stable version. Raises as `promote`."""
    from serving.client.models import rollouts

    return (yield from _changed(core, name, timeout, rollouts.abort))


def rollback(core: ClientCore, name: str, *, to: str | None = None, timeout: float = TIMEOUT) -> Call[Model]:
    """Send all traffic to the version that had it before, or to `to`, and pin it there; return the model.

    `to` is a revision or a version label. Raises as `promote`, and Invalid for a version that was never ready.
    """
    from serving.client.models import rollouts

    return (yield from _changed(core, name, timeout, rollouts.rollback, to))


def _changed(
    core: ClientCore, name: str, timeout: float, operation: Callable[..., Call[Object]], *arguments: Any
) -> Call[Model]:
    api = yield from core.calls(check_timeout(timeout))
    return (yield from core.model((yield from operation(api, check_name(name), core.namespace, timeout, *arguments))))

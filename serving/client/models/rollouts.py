"""Change the traffic or the rollout of a Model, and wait for the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clusters.base.objects import MODEL, REVISION, Object, generation_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, Tell
from serving.client.errors import ClientError
from serving.client.models.changes import change_model
from serving.client.models.waiting import (
    is_routed,
    report_stored_change,
    wait_until,
    wait_until_ready,
    wait_until_routed,
)
from serving.reconciler.rollout import commands
from serving.reconciler.rollout.state import Phase, RolloutState, join_reasons, rollout_of
from serving.types.annotations import LABEL_MODEL
from serving.types.rollout import ALL

PROMOTED: Phase = "Promoted"
"""The phase that a rolled-back rollout can still reach."""
COLLECTED = "the revision of that version was deleted: a new one is created from its record and starts a rollout"


def set_traffic(
    api: ApiCalls, name: str, namespace: str, timeout: float, targets: Sequence[tuple[str, int]]
) -> Call[Object]:
    """Split the traffic between versions: pairs of (revision, version label or `latest`) and percent.

    Return the Model once the split is applied. Raises Invalid, NotFound, Conflict, TimedOut, ClientError.
    """
    return (
        yield from _change_split(
            api, name, namespace, timeout, lambda model, revisions: commands.traffic(model, targets, revisions)
        )
    )


def promote(api: ApiCalls, name: str, namespace: str, timeout: float) -> Call[Object]:
    """Send all traffic to the latest ready version, ending a pin, a canary or a rollout; return the Model.

    Raises NotFound, Conflict, TimedOut, ClientError.
    """
    model = yield from api.get(MODEL, name, namespace)
    if commands.promoted_by(model):
        return (yield from _change_rollout(api, name, namespace, timeout, commands.promote, PROMOTED))
    return (yield from _change_split(api, name, namespace, timeout, lambda model, _: commands.promote(model)))


def pause(api: ApiCalls, name: str, namespace: str, timeout: float) -> Call[Object]:
    """Pause the rollout at its step; a failing version is still rolled back. Raises NoRollout, and as `promote`."""
    return (yield from _change_rollout(api, name, namespace, timeout, commands.pause, "Paused"))


def resume(api: ApiCalls, name: str, namespace: str, timeout: float) -> Call[Object]:
    """Resume the paused rollout with the rest of its step. Raises NoRollout, and as `promote`."""
    return (yield from _change_rollout(api, name, namespace, timeout, commands.resume, "Progressing"))


def abort(api: ApiCalls, name: str, namespace: str, timeout: float) -> Call[Object]:
    """Abort the rollout and send all traffic to the stable version. Raises NoRollout, and as `promote`."""
    return (yield from _change_rollout(api, name, namespace, timeout, commands.abort, "RolledBack"))


def rollback(api: ApiCalls, name: str, namespace: str, timeout: float, to: str | None = None) -> Call[Object]:
    """Send all traffic to the version that had it before, or to `to`, a revision or version label, and pin it there.

    Raises NothingToRollBackTo, Invalid, and as `promote`.
    """
    return (
        yield from _change_split(
            api, name, namespace, timeout, lambda model, revisions: commands.rollback(model, revisions, to)
        )
    )


def _change_rollout(
    api: ApiCalls, name: str, namespace: str, timeout: float, patch_of: Callable[[Object], dict[str, Any]], phase: Phase
) -> Call[Object]:
    """Apply the patch, wait until the rollout has the phase and the traffic matches, and return the Model.

    Raises ClientError when the rollout ends in another phase.
    """
    generation = generation_of((yield from change_model(api, name, namespace, patch_of)))

    def done(model: Object) -> bool:
        state = rollout_of(model)
        if state is None:
            return is_routed(model, generation)  # the Model had no rollout
        if state.phase != phase and not state.runs and phase != PROMOTED:
            raise ClientError(
                f"the rollout of {state.candidate} has ended: {state.phase}: {join_reasons(state.reasons)}"
            )
        return state.phase == phase and _follows(model, state)

    with report_stored_change(name):
        return (yield from wait_until(api, name, namespace, timeout, done))


def _change_split(
    api: ApiCalls,
    name: str,
    namespace: str,
    timeout: float,
    patch_of: Callable[[Object, list[Object]], dict[str, Any]],
) -> Call[Object]:
    """Apply the patch that `patch_of` returns for (Model, Revisions), wait until it is applied, return the Model."""
    yield from api.get(MODEL, name, namespace)
    revisions = (yield from api.list(REVISION, namespace, f"{LABEL_MODEL}={name}"))["items"]
    sent: dict[str, Any] = {}

    def patch(model: Object) -> dict[str, Any]:
        sent.update(patch_of(model, revisions))
        return sent

    changed = yield from change_model(api, name, namespace, patch)
    makes_a_version = "storageUri" in sent.get("spec", {})  # a rollback to a garbage-collected version
    if makes_a_version and (changed.get("spec") or {}).get("rollout") is not None:
        yield Tell(f"{COLLECTED}: `knodel promote {name}` sends it all the traffic at once", is_warning=True)
    wait = wait_until_ready if makes_a_version else wait_until_routed
    return (yield from wait(api, name, namespace, timeout, generation_of(changed)))


def _follows(model: Object, state: RolloutState) -> bool:
    """Return whether the traffic in the status matches the outcome of an ended rollout."""
    wanted = {"Promoted": ALL, "RolledBack": 0}.get(state.phase)
    traffic = (model.get("status") or {}).get("traffic") or ()
    loser = state.stable if wanted == ALL else state.candidate
    return wanted is None or not any(one.get("revision") == loser and one.get("percent") for one in traffic)

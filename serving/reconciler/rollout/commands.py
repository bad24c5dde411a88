"""Make the merge patches of the commands promote, rollback, traffic, pause, resume and abort. Pure.

`revisions` are the Model's existing Revision objects (label `knodel.dev/model`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clusters.base.errors import FieldError, Invalid, KnodelError, NotFound
from clusters.base.objects import Object, annotations_of, generation_of, name_of
from serving.reconciler.rollout.history import rollback_target
from serving.reconciler.rollout.state import RolloutState, rollout_of
from serving.reconciler.rollout.versions import Version, shares_of, version_with, versions_of
from serving.types.annotations import ANNOTATION_CAUSE, ANNOTATION_ROLLOUT
from serving.types.model import LATEST, Cause, HistoryEntry, history_of
from serving.types.ray import source_patch
from serving.types.rollout import Command, Verb, parse_command

ALL = 100
"""Percent."""


class NothingToRollBackTo(KnodelError):
    """The Model has no earlier version that had all the traffic."""


class NoRollout(KnodelError):
    """The Model has no running rollout to pause, resume or abort."""


def cause_annotation(cause: Cause) -> Object:
    """Return the annotation with the cause of a Model's change, for `metadata.annotations`."""
    return {ANNOTATION_CAUSE: json.dumps(cause.to_json(), separators=(",", ":"))}


def done_command(model: Object) -> Object:
    """Return annotations for the Model's next patch that remove its command if it is done, else no annotations.

    A command applies to one revision, which may be rolled out again: it must not end the next rollout.
    """
    command, state = parse_command(annotations_of(model).get(ANNOTATION_ROLLOUT, "")), rollout_of(model)
    if command is None or state is None:
        return {}
    if command.revision != state.candidate:
        done = state.runs and command.verb != "promote"
    else:
        done = state.phase == "Promoted" if command.verb == "promote" else not state.runs
    return {ANNOTATION_ROLLOUT: None} if done else {}


def promote(model: Object) -> Object:
    """Return the patch that gives the latest ready revision all traffic, and ends traffic split, canary and rollout."""
    patch = _patch(model, Cause(), {"traffic": None, "canaryTrafficPercent": None})
    revision = promoted_by(model)
    return _with_command(patch, "promote", revision) if revision else patch


def promoted_by(model: Object) -> str:
    """Return the revision whose rollout `promote` would end; empty without a rollout."""
    state, rule = rollout_of(model), (model.get("spec") or {}).get("rollout")
    if state is not None and state.runs:
        return state.candidate
    if state is None and rule is None:
        return ""
    return str((model.get("status") or {}).get("latestReadyRevision") or "")


def pause(model: Object) -> Object:
    """Return the patch that keeps the rollout at its step. Raises NoRollout."""
    return _with_command({}, "pause", _running_rollout(model, "pause").candidate)


def abort(model: Object) -> Object:
    """Return the patch that gives the stable version all the traffic back. Raises NoRollout."""
    return _with_command({}, "abort", _running_rollout(model, "abort").candidate)


def resume(model: Object) -> Object:
    """Return the patch that continues a paused rollout. Raises NoRollout."""
    _running_rollout(model, "resume")
    spec = model.get("spec") or {}
    by_hand = [name for name in ("traffic", "canaryTrafficPercent") if spec.get(name) is not None]
    if by_hand:
        raise NoRollout(
            f"the rollout of model {name_of(model)} is paused by spec.{by_hand[0]}: "
            f"`knodel deploy {name_of(model)} --rollout` removes it, `knodel promote {name_of(model)}` ends both"
        )
    return {"metadata": {"annotations": {ANNOTATION_ROLLOUT: None}}}


def rollback(model: Object, revisions: Sequence[Object], to: str | None = None) -> Object:
    """Return the patch that gives all traffic to a former version.

    This is the version that had it all before the present one, or `to`: a revision or a version label. A version that
    Knative collected is deployed again from its history entry. Raises NothingToRollBackTo, NotFound, and Invalid for a
    label of several versions or a version that was never ready.
    """
    history = history_of(model)
    versions = versions_of(revisions, [entry.revision for entry in history])
    target = _revision_of(to, history, versions) if to else _former_version(model, history, versions)
    _check_was_ready(model, [target], versions)
    living = version_with(versions, target)
    if living is not None and living.complete:
        entry = {"revision": living.revision, "percent": ALL, **_tag_of(model, target)}
        spec = {"traffic": [entry], "canaryTrafficPercent": None}
        cause = _repeated_rollback(model, living.revision, spec) or _rollback_cause(model, living.revision)
        back = _patch(model, cause, spec)
        state = rollout_of(model)
        return _with_command(back, "abort", state.candidate) if state is not None and state.runs else back
    record = next((entry for entry in reversed(history) if entry.revision == target), None)
    if record is None:
        raise _unknown_error(model, target, versions)
    source = source_patch(record.storage_uri, model.get("spec") or {})
    again = {**source, "digest": record.digest or None, "version": record.version or None}
    return _patch(model, _rollback_cause(model, target), {**again, "traffic": None, "canaryTrafficPercent": None})


def traffic(model: Object, targets: Sequence[tuple[str, int]], revisions: Sequence[Object]) -> Object:
    """Return the patch that sets `spec.traffic` to pairs of (revision, version label or `latest`) and percent.

    Revisions that had a tag keep it. Raises Invalid for percents, for a label of several versions and for a version
    that was never ready; NotFound for an unknown revision.
    """
    versions = versions_of(revisions)
    targets = [(_revision_of(name, (), versions), percent) for name, percent in targets]
    _check_percents(model, targets)
    for revision, _ in targets:
        if revision != LATEST and version_with(versions, revision) is None:
            raise _unknown_error(model, revision, versions)
    _check_was_ready(model, [revision for revision, _ in targets if revision != LATEST], versions)
    entries = [
        {**({"latest": True} if revision == LATEST else {"revision": revision}), "percent": percent,
         **_tag_of(model, revision)}
        for revision, percent in targets
    ]  # fmt: skip
    return _patch(model, Cause(), {"traffic": entries, "canaryTrafficPercent": None})


def revisions_named(name: str, model: Object, revisions: Sequence[Object]) -> list[str]:
    """Return the names of the revisions of `name`, a revision or a version label.

    Revisions that only the history contains are included. With variants a label has one revision for each. Raises
    NotFound, and Invalid for a label of several versions.
    """
    history = history_of(model)
    versions = versions_of(revisions, [entry.revision for entry in history])
    found = _revision_of(name, history, versions)
    if found != name and (version := version_with(versions, found)) is not None:
        return list(version.revisions.values())
    if version_with(versions, found) is None and all(entry.revision != found for entry in history):
        raise _unknown_error(model, name, versions)
    return [found]


def _running_rollout(model: Object, verb: str) -> RolloutState:
    state = rollout_of(model)
    if state is not None and state.runs:
        return state
    last = f"; the last one, of {state.candidate}, is {state.phase}" if state is not None else ""
    raise NoRollout(f"model {name_of(model)} has no running rollout to {verb}{last}")


def _with_command(patch: Object, verb: Verb, revision: str) -> Object:
    """Return the patch with the command added."""
    annotations = (patch.get("metadata") or {}).get("annotations") or {}
    return {**patch, "metadata": {"annotations": {**annotations, ANNOTATION_ROLLOUT: str(Command(verb, revision))}}}


def _rollback_cause(model: Object, revision: str) -> Cause:
    """Return the cause of a rollback. Its id has the target, and the Model's generation, which makes it unique."""
    return Cause("rollback", f"{revision}@{generation_of(model)}")


def _repeated_rollback(model: Object, revision: str, spec: Object) -> Cause | None:
    """Return the cause of the Model's last rollback if it is the same one, so that a repetition changes nothing."""
    present = model.get("spec") or {}
    if any(present.get(name) != wanted for name, wanted in spec.items()):
        return None
    try:
        cause = Cause.from_json(json.loads(annotations_of(model)[ANNOTATION_CAUSE]))
    except (KeyError, ValueError, AttributeError):
        return None
    return cause if cause.by == "rollback" and cause.id.startswith(f"{revision}@") else None


def _check_percents(model: Object, targets: Sequence[tuple[str, int]]) -> None:
    names = [revision for revision, _ in targets]
    errors = [
        FieldError(f"spec.traffic[{index}].percent", f"must be a whole number from 0 to {ALL}, not {percent}")
        for index, (_, percent) in enumerate(targets)
        if not 0 <= percent <= ALL
    ]
    errors += [
        FieldError(f"spec.traffic[{index}].revision", f"{name} is given twice: give it once")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    total = sum(percent for _, percent in targets)
    if not errors and total != ALL:
        errors = [FieldError("spec.traffic", f"the percents sum to {total}: they must sum to {ALL}")]
    if errors:
        raise Invalid(f"Model {name_of(model)}", errors)


def _check_was_ready(model: Object, targets: Sequence[str], versions: Sequence[Version]) -> None:
    """Raise Invalid for targets that were never ready: a pin to one would serve nothing and block later deploys.

    A version without replicas stays ready. A version that fails now was ready if it has traffic, had all of it, or is
    the latest ready revision of the status.
    """
    status, history = model.get("status") or {}, history_of(model)
    known = {entry.revision for entry in history if entry.promoted_at}
    known |= {entry["revision"] for entry in status.get("traffic") or () if entry.get("percent")}
    known.add(status.get("latestReadyRevision") or "")
    failed = {entry.revision for entry in history if entry.outcome == "failed"} - known
    ready = [version for version in versions if version.ready or not known.isdisjoint(version.revisions.values())]
    refused = [
        target
        for target in targets
        if (version not in ready if (version := version_with(versions, target)) else target in failed)
    ]
    if refused:
        names = ", ".join(version.revision for version in ready) or "none"
        raise Invalid(
            f"Model {name_of(model)}",
            [FieldError("", f"{target} was never ready: choose one of {names}") for target in refused],
        )


def _former_version(model: Object, history: Sequence[HistoryEntry], versions: Sequence[Version]) -> str:
    target = rollback_target(history, shares_of((model.get("status") or {}).get("traffic") or (), versions))
    if target is None:
        raise NothingToRollBackTo(
            f"model {name_of(model)} has no earlier version that had all the traffic: choose one with --to REVISION"
        )
    return target.revision


def _revision_of(name: str, history: Sequence[HistoryEntry], versions: Sequence[Version]) -> str:
    """Return the revision with this name, or that of the version with this label.

    Raises Invalid for a label of several versions.
    """
    entries = {entry.revision: entry.version for entry in history}
    labels = entries | {version.revision: version.version for version in versions}
    if name == LATEST or name in labels or version_with(versions, name) is not None:
        return name
    found = [revision for revision, label in labels.items() if label == name]
    if len(found) > 1:
        fault = f"is the label of {' and '.join(found)}: give the name of the revision"
        raise Invalid(f"version {name!r}", [FieldError(name, fault)])
    return found[0] if found else name


def _tag_of(model: Object, revision: str) -> Object:
    """Return the present tag of the revision (or `latest`) in `spec.traffic`, if any."""
    for entry in (model.get("spec") or {}).get("traffic") or ():
        name = LATEST if entry.get("latest") else entry.get("revision")
        if name == revision and entry.get("tag"):
            return {"tag": entry["tag"]}
    return {}


def _unknown_error(model: Object, name: str, versions: Sequence[Version]) -> NotFound:
    known = [
        f"{revision} ({version.version})" if version.version else revision
        for version in versions
        for revision in version.revisions.values()
    ]
    fault = f"{name} is not a revision or version label of model {name_of(model)}"
    return NotFound(f"{fault}; known: {', '.join(known) or 'none'}")


def _patch(model: Object, cause: Cause, spec: Object) -> Object:
    return {"metadata": {"annotations": cause_annotation(cause) | done_command(model)}, "spec": spec}

"""What `promote`, `rollback` and `traffic` mean: from a Model to the merge patch that the command sends. Pure.

`revisions` are the Model's living Revision objects (label `knodel.dev/model`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clusters.errors import FieldError, Invalid, KnodelError, NotFound
from clusters.objects import Object, generation_of, name_of
from serving.apis.annotations import ANNOTATION_CAUSE
from serving.apis.model import LATEST, Cause, HistoryEntry, history_of
from serving.rollout.history import rollback_target
from serving.rollout.versions import Version, shares_of, version_with, versions_of

ALL = 100
"""Percent."""


class NothingToRollBackTo(KnodelError):
    """No earlier version ever had all the traffic."""


def cause_annotation(cause: Cause) -> Object:
    """The part of a Model that says why it changes; for `metadata.annotations`."""
    return {ANNOTATION_CAUSE: json.dumps(cause.to_json(), separators=(",", ":"))}


def promote(model: Object) -> Object:
    """The latest ready revision gets everything: traffic by hand and canary end."""
    return _patch(Cause(), {"traffic": None, "canaryTrafficPercent": None})


def rollback(model: Object, revisions: Sequence[Object], to: str | None = None) -> Object:
    """All traffic to the version that last had it all before the present one, or to revision `to`.

    A version that Knative has collected is made anew from its history record. Raises NothingToRollBackTo, NotFound.
    """
    history = history_of(model)
    versions = versions_of(revisions, [entry.revision for entry in history])
    target = to or _before(model, history, versions)
    living = version_with(versions, target)
    if living is not None and living.complete:
        entry = {"revision": target, "percent": ALL, **_tag_of(model, target)}
        return _patch(_rolled_back_to(model, living.revision), {"traffic": [entry], "canaryTrafficPercent": None})
    record = next((entry for entry in reversed(history) if entry.revision == target), None)
    if record is None:
        raise NotFound(f"{target} is no revision of model {name_of(model)}; known: {_known(versions)}")
    again = {"storageUri": record.storage_uri, "digest": record.digest or None, "version": record.version or None}
    return _patch(_rolled_back_to(model, target), {**again, "traffic": None, "canaryTrafficPercent": None})


def traffic(model: Object, targets: Sequence[tuple[str, int]], revisions: Sequence[Object]) -> Object:
    """Traffic by hand: (revision or `latest`, percent) each. Tags of what is named again stay.

    Raises Invalid for percents, NotFound for an unknown revision.
    """
    versions = versions_of(revisions)
    _check_percents(model, targets)
    for revision, _ in targets:
        if revision != LATEST and version_with(versions, revision) is None:
            raise NotFound(f"{revision} is no revision of model {name_of(model)}; known: {_known(versions)}")
    entries = [
        {**({"latest": True} if revision == LATEST else {"revision": revision}), "percent": percent,
         **_tag_of(model, revision)}
        for revision, percent in targets
    ]  # fmt: skip
    return _patch(Cause(), {"traffic": entries, "canaryTrafficPercent": None})


def _rolled_back_to(model: Object, revision: str) -> Cause:
    """A rollback's cause: its id names the target, and the Model's generation makes it one of a kind."""
    return Cause("rollback", f"{revision}@{generation_of(model)}")


def _check_percents(model: Object, targets: Sequence[tuple[str, int]]) -> None:
    names = [revision for revision, _ in targets]
    errors = [
        FieldError(f"spec.traffic[{index}].percent", f"must be a whole number from 0 to {ALL}, not {percent}")
        for index, (_, percent) in enumerate(targets)
        if not 0 <= percent <= ALL
    ]
    errors += [
        FieldError(f"spec.traffic[{index}].revision", f"{name} stands twice: name it once")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    total = sum(percent for _, percent in targets)
    if not errors and total != ALL:
        errors = [FieldError("spec.traffic", f"the percents sum to {total}: they must sum to {ALL}")]
    if errors:
        raise Invalid(f"Model {name_of(model)}", errors)


def _before(model: Object, history: Sequence[HistoryEntry], versions: Sequence[Version]) -> str:
    target = rollback_target(history, shares_of((model.get("status") or {}).get("traffic") or (), versions))
    if target is None:
        raise NothingToRollBackTo(
            f"model {name_of(model)} has no earlier version that had all the traffic: name one with --to"
        )
    return target.revision


def _tag_of(model: Object, revision: str) -> Object:
    """The tag that `spec.traffic` gives the revision (or `latest`) now, if any."""
    for entry in (model.get("spec") or {}).get("traffic") or ():
        name = LATEST if entry.get("latest") else entry.get("revision")
        if name == revision and entry.get("tag"):
            return {"tag": entry["tag"]}
    return {}


def _known(versions: Sequence[Version]) -> str:
    return ", ".join(revision for version in versions for revision in version.revisions.values()) or "none"


def _patch(cause: Cause, spec: Object) -> Object:
    return {"metadata": {"annotations": cause_annotation(cause)}, "spec": spec}

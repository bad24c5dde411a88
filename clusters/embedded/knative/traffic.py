"""A Route's traffic, brought down to Revisions: pure.

Source: knative/serving `pkg/reconciler/route/traffic`. A target that is missing or not ready makes the whole Route keep
its former traffic; of several bad targets one that failed for good is reported before one that is only late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusters.base.objects import LABEL_CONFIGURATION, LABEL_SERVICE, Object, condition_of, is_true, labels_of, name_of
from clusters.embedded.knative import defaults
from clusters.embedded.knative.conditions import FALSE, UNKNOWN
from clusters.embedded.knative.lifecycle import READY, REVISION_MISSING, quoted

Lookup = Callable[[str], Object | None]
"""Finds an object of one kind in the Route's namespace by name."""

DEFAULT_TARGET = ""  # the tag of what the Route's own host reaches
HTTP1, H2C = "http1", "h2c"


@dataclass(frozen=True, slots=True)
class Target:
    """A share of the traffic and the Revision that gets it."""

    revision: str
    percent: int
    tag: str = ""
    latest: bool = False
    protocol: str = HTTP1


@dataclass(frozen=True, slots=True)
class Traffic:
    """`targets` as status shows them; `groups` as the network routes them: tag → its Revisions."""

    targets: Sequence[Target]
    groups: Mapping[str, Sequence[Target]]


@dataclass(frozen=True, slots=True)
class BadTarget:
    """Why the traffic cannot be assigned: the condition AllTrafficAssigned."""

    status: str
    reason: str
    message: str


def assign(route: Object, configuration: Lookup, revision: Lookup) -> Traffic | BadTarget:
    """The traffic that the Route asks for, or the bad target that stands in its way."""
    found: list[Target] = []
    bad: BadTarget | None = None
    for wanted in defaults.traffic((route.get("spec") or {}).get("traffic")):
        target = _resolve(wanted, route, configuration, revision)
        if isinstance(target, Target):
            found.append(target)
        elif bad is None or target.status == FALSE:
            bad = target
    return bad if bad is not None else Traffic(_merged(found), _groups(found))


def _resolve(wanted: Object, route: Object, configuration: Lookup, revision: Lookup) -> Target | BadTarget:
    if wanted.get("revisionName"):
        chosen = _named_revision(wanted["revisionName"], route, configuration, revision)
    else:
        chosen = _latest_revision(str(wanted.get("configurationName", "")), configuration, revision)
    if isinstance(chosen, BadTarget):
        return chosen
    return Target(
        revision=name_of(chosen),
        percent=int(wanted["percent"]),
        tag=str(wanted.get("tag", "")),
        latest=bool(wanted["latestRevision"]),
        protocol=protocol_of(chosen),
    )


def _latest_revision(name: str, configuration: Lookup, revision: Lookup) -> Object | BadTarget:
    found = configuration(name)
    if found is None:
        return _missing("Configuration", name)
    latest = (found.get("status") or {}).get("latestReadyRevisionName")
    if not latest:
        return _unready_configuration(found)
    ready = revision(latest)
    if ready is None:
        return _missing("Revision", latest)
    return ready if is_true(ready, READY) else _unready_revision(ready)


def _named_revision(name: str, route: Object, configuration: Lookup, revision: Lookup) -> Object | BadTarget:
    found = revision(name)
    if found is None:
        return _missing("Revision", name)
    service, owner = labels_of(route).get(LABEL_SERVICE, ""), labels_of(found).get(LABEL_SERVICE, "")
    if service and service != owner:
        return _not_owned(name, service, owner)
    if not is_true(found, READY):
        return _unready_revision(found)
    parent = labels_of(found).get(LABEL_CONFIGURATION)
    if parent is not None and configuration(parent) is None:
        return _missing("Configuration", parent)
    return found


def _missing(kind: str, name: str) -> BadTarget:
    return BadTarget(FALSE, f"{kind}Missing", f"{kind} {quoted(name)} referenced in traffic not found.")


def _not_owned(revision: str, wanted: str, actual: str) -> BadTarget:
    if actual:
        message = f"Revision {quoted(revision)} belongs to Service {quoted(actual)}, not Service {quoted(wanted)}."
    else:
        message = f"Revision {quoted(revision)} does not belong to Service {quoted(wanted)}."
    return BadTarget(FALSE, "RevisionNotOwned", message)


def _unready_configuration(configuration: Object) -> BadTarget:
    name = quoted(name_of(configuration))
    if _failed(configuration):
        return BadTarget(FALSE, REVISION_MISSING, f"Configuration {name} does not have any ready Revision.")
    return BadTarget(UNKNOWN, REVISION_MISSING, f"Configuration {name} is waiting for a Revision to become ready.")


def _unready_revision(revision: Object) -> BadTarget:
    name = quoted(name_of(revision))
    if _failed(revision):
        return BadTarget(FALSE, REVISION_MISSING, f"Revision {name} failed to become ready.")
    return BadTarget(UNKNOWN, REVISION_MISSING, f"Revision {name} is not yet ready.")


def _failed(obj: Object) -> bool:
    return (condition_of(obj, READY) or {}).get("status") == FALSE


def protocol_of(revision: Object) -> str:
    """What the Revision's one port speaks: http1 or h2c."""
    for container in (revision.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return H2C if port.get("name") == H2C else HTTP1
    return HTTP1


def _merged(targets: Iterable[Target]) -> list[Target]:
    """Targets of one tag and Revision are one, unless one of them follows the latest."""
    merged: dict[tuple[str, str, bool], Target] = {}
    for target in targets:
        key = (target.tag, target.revision, target.latest)
        former = merged.get(key)
        merged[key] = target if former is None else replace(former, percent=former.percent + target.percent)
    return list(merged.values())


def _groups(targets: Sequence[Target]) -> dict[str, Sequence[Target]]:
    groups: dict[str, list[Target]] = {DEFAULT_TARGET: list(targets)}
    for target in targets:
        if target.tag:
            groups.setdefault(target.tag, []).append(target)
    return {tag: _consolidated(group) for tag, group in groups.items()}


def _consolidated(targets: Iterable[Target]) -> list[Target]:
    """One share for each Revision; a lone Revision has all of it."""
    shares: dict[str, Target] = {}
    for target in targets:
        former = shares.get(target.revision)
        shares[target.revision] = target if former is None else replace(former, percent=former.percent + target.percent)
    if len(shares) == 1:
        return [replace(target, percent=defaults.ALL_TRAFFIC) for target in shares.values()]
    return list(shares.values())

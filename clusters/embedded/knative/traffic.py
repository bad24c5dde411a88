"""Resolve the traffic of a Route to Revisions.

Source: knative/serving `pkg/reconciler/route/traffic`. A target that is missing or not ready leaves the traffic of the
whole Route unchanged. Of several bad targets, a failed one is reported before one that is not ready yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusters.base.objects import LABEL_CONFIGURATION, LABEL_SERVICE, Object, condition_of, is_true, labels_of, name_of
from clusters.embedded.knative import defaults
from clusters.embedded.knative.conditions import FALSE, UNKNOWN
from clusters.embedded.knative.lifecycle import READY, REVISION_MISSING, quoted

Lookup = Callable[[str], Object | None]
"""Returns an object of one kind in the Route's namespace by name, or None."""

DEFAULT_TARGET = ""  # the tag of the Route's own host
HTTP1, H2C = "http1", "h2c"


@dataclass(frozen=True, slots=True)
class RevisionTarget:
    """A Revision and its share of the traffic."""

    revision: str
    percent: int
    tag: str = ""
    latest: bool = False
    protocol: str = HTTP1


@dataclass(frozen=True, slots=True)
class TrafficConfig:
    """The resolved traffic: `targets` as in the status, and `groups`, from each tag to the split of its Revisions."""

    targets: Sequence[RevisionTarget]
    groups: Mapping[str, Sequence[RevisionTarget]]


@dataclass(frozen=True, slots=True)
class BadTrafficTarget:
    """Why the traffic cannot be assigned, as condition AllTrafficAssigned."""

    status: str
    reason: str
    message: str


def build_traffic_config(route: Object, configuration: Lookup, revision: Lookup) -> TrafficConfig | BadTrafficTarget:
    """Return the traffic of the Route's spec, or the first bad target."""
    found: list[RevisionTarget] = []
    bad: BadTrafficTarget | None = None
    for wanted in defaults.traffic((route.get("spec") or {}).get("traffic")):
        target = _resolve(wanted, route, configuration, revision)
        if isinstance(target, RevisionTarget):
            found.append(target)
        elif bad is None or target.status == FALSE:
            bad = target
    return bad if bad is not None else TrafficConfig(_merged(found), _groups(found))


def _resolve(
    wanted: Object, route: Object, configuration: Lookup, revision: Lookup
) -> RevisionTarget | BadTrafficTarget:
    if wanted.get("revisionName"):
        chosen = _named_revision(wanted["revisionName"], route, configuration, revision)
    else:
        chosen = _latest_revision(str(wanted.get("configurationName", "")), configuration, revision)
    if isinstance(chosen, BadTrafficTarget):
        return chosen
    return RevisionTarget(
        revision=name_of(chosen),
        percent=int(wanted["percent"]),
        tag=str(wanted.get("tag", "")),
        latest=bool(wanted["latestRevision"]),
        protocol=protocol_of(chosen),
    )


def _latest_revision(name: str, configuration: Lookup, revision: Lookup) -> Object | BadTrafficTarget:
    found = configuration(name)
    if found is None:
        return _missing("Configuration", name)
    latest = (found.get("status") or {}).get("latestReadyRevisionName")
    if not latest:
        name = quoted(name_of(found))
        if _failed(found):
            return BadTrafficTarget(FALSE, REVISION_MISSING, f"Configuration {name} does not have any ready Revision.")
        message = f"Configuration {name} is waiting for a Revision to become ready."
        return BadTrafficTarget(UNKNOWN, REVISION_MISSING, message)
    ready = revision(latest)
    if ready is None:
        return _missing("Revision", latest)
    return ready if is_true(ready, READY) else _unready_revision(ready)


def _named_revision(name: str, route: Object, configuration: Lookup, revision: Lookup) -> Object | BadTrafficTarget:
    found = revision(name)
    if found is None:
        return _missing("Revision", name)
    service, owner = labels_of(route).get(LABEL_SERVICE, ""), labels_of(found).get(LABEL_SERVICE, "")
    if service and service != owner:
        wanted = f"Service {quoted(service)}"
        message = f"Revision {quoted(name)} does not belong to {wanted}."
        if owner:
            message = f"Revision {quoted(name)} belongs to Service {quoted(owner)}, not {wanted}."
        return BadTrafficTarget(FALSE, "RevisionNotOwned", message)
    if not is_true(found, READY):
        return _unready_revision(found)
    parent = labels_of(found).get(LABEL_CONFIGURATION)
    if parent is not None and configuration(parent) is None:
        return _missing("Configuration", parent)
    return found


def _missing(kind: str, name: str) -> BadTrafficTarget:
    return BadTrafficTarget(FALSE, f"{kind}Missing", f"{kind} {quoted(name)} referenced in traffic not found.")


def _unready_revision(revision: Object) -> BadTrafficTarget:
    name = quoted(name_of(revision))
    if _failed(revision):
        return BadTrafficTarget(FALSE, REVISION_MISSING, f"Revision {name} failed to become ready.")
    return BadTrafficTarget(UNKNOWN, REVISION_MISSING, f"Revision {name} is not yet ready.")


def _failed(obj: Object) -> bool:
    return (condition_of(obj, READY) or {}).get("status") == FALSE


def protocol_of(revision: Object) -> str:
    """Return the protocol of the Revision's port: http1 or h2c."""
    for container in (revision.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return H2C if port.get("name") == H2C else HTTP1
    return HTTP1


def _merged(targets: Iterable[RevisionTarget]) -> list[RevisionTarget]:
    """Merge targets with the same tag and Revision, unless only one of them follows the latest Revision."""
    merged: dict[tuple[str, str, bool], RevisionTarget] = {}
    for target in targets:
        key = (target.tag, target.revision, target.latest)
        former = merged.get(key)
        merged[key] = target if former is None else replace(former, percent=former.percent + target.percent)
    return list(merged.values())


def _groups(targets: Sequence[RevisionTarget]) -> dict[str, Sequence[RevisionTarget]]:
    groups: dict[str, list[RevisionTarget]] = {DEFAULT_TARGET: list(targets)}
    for target in targets:
        if target.tag:
            groups.setdefault(target.tag, []).append(target)
    return {tag: _consolidated(group) for tag, group in groups.items()}


def _consolidated(targets: Iterable[RevisionTarget]) -> list[RevisionTarget]:
    """Return one target for each Revision. A single Revision gets 100 %."""
    shares: dict[str, RevisionTarget] = {}
    for target in targets:
        former = shares.get(target.revision)
        shares[target.revision] = target if former is None else replace(former, percent=former.percent + target.percent)
    if len(shares) == 1:
        return [replace(target, percent=defaults.ALL_TRAFFIC) for target in shares.values()]
    return list(shares.values())

"""Validate traffic targets.

Source: knative/serving `pkg/apis/serving/v1/route_validation.go`. One rule is additional: a tag whose host is not a DNS
label is rejected here. Knative accepts it, and the Route fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.names import LONGEST_LABEL, label_key_fault
from clusters.embedded.knative import names
from clusters.embedded.knative.defaults import ALL_TRAFFIC
from tests.support.knative_webhook.checks import Faults

_FIELDS = ("tag", "revisionName", "configurationName", "latestRevision", "percent")


def check_traffic(faults: Faults, path: str, value: object, parent: str, *, in_service: bool) -> None:
    """Validate the targets of a Route.

    In a Service the Configuration is implied, and the default is all traffic to it.
    """
    targets = faults.items(path, value)
    if not targets and in_service:
        return
    total = 0
    tags: dict[str, str] = {}
    for where, item in targets:
        target = faults.map(where, item)
        _check_target(faults, where, target, in_service=in_service)
        percent = faults.integer(f"{where}.percent", target.get("percent"), 0, ALL_TRAFFIC)
        total += percent or 0
        _check_tag(faults, where, faults.string(f"{where}.tag", target.get("tag")), parent, tags)
    if total != ALL_TRAFFIC and not any(fault.path.endswith(".percent") for fault in faults.found):
        faults.add(path, f"Traffic targets sum to {total}, want {ALL_TRAFFIC}")


def _check_target(faults: Faults, path: str, target: Mapping[str, Any], *, in_service: bool) -> None:
    faults.known_fields(path, target, _FIELDS, refused=("url",))
    revision = faults.string(f"{path}.revisionName", target.get("revisionName"))
    configuration = faults.string(f"{path}.configurationName", target.get("configurationName"))
    latest = faults.boolean(f"{path}.latestRevision", target.get("latestRevision"))
    if latest is not None and latest == bool(revision):
        message = f"may not set revisionName {revision!r} when latestRevision is {str(latest).lower()}"
        faults.add(f"{path}.latestRevision", message)
    if in_service and configuration:
        faults.add(f"{path}.configurationName", "must not be set in a Service, which has its own Configuration")
    elif revision and configuration:
        faults.add(path, "expected exactly one, got both: revisionName, configurationName")
    elif not in_service and not revision and not configuration:
        faults.add(path, "expected exactly one, got neither: revisionName, configurationName")
    for field, name in (("revisionName", revision), ("configurationName", configuration)):
        if name and label_key_fault(name):
            faults.add(f"{path}.{field}", label_key_fault(name))


def _check_tag(faults: Faults, path: str, tag: str, parent: str, seen: dict[str, str]) -> None:
    if not tag:
        return
    faults.dns_1035(f"{path}.tag", tag)
    if tag in seen:
        faults.add(f"{path}.tag", f'Multiple definitions for "{tag}": it is also at {seen[tag]}')
    seen.setdefault(tag, f"{path}.tag")
    host = names.hostname(parent, tag)
    if len(host) > LONGEST_LABEL:
        faults.add(f"{path}.tag", f"its host {host!r} has {len(host)} characters: at most {LONGEST_LABEL} are allowed")

"""Random traffic is converted to the gateway's table: shares are complete, hosts are names, and Envoy accepts the
table.

Corresponds to Knative's fuzz targets of the route reconciler and of the domain template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import strategies as st

from clusters.base.objects import Object
from clusters.embedded.knative import names
from clusters.embedded.knative.ingress import make_ingress
from clusters.embedded.knative.traffic import BadTrafficTarget, build_traffic_config
from clusters.gateway.config import RouteMaker
from clusters.gateway.ingress import revisions_of, virtual_hosts, without_collisions
from tests.fuzz.target import Target

ALL = 100  # percent
HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_LABEL = 63  # characters (RFC 1035)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True)
TAGS = st.sampled_from(["", "", "blue", "a", "candidate", "x-1"])
REVISIONS = ("m-00001", "m-00002", "m-00003")
STATES = ("True", "Unknown", "False", None)


@dataclass(frozen=True, slots=True)
class Case:
    """A Route, and the existing revisions with their readiness."""

    name: str
    namespace: str
    targets: tuple[tuple[str, str, int], ...]
    states: tuple[str | None, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Generate shares that sum to 100, tags, and revisions that may be missing."""
    cuts = sorted(draw(st.lists(st.integers(0, ALL), max_size=5)))
    shares = [high - low for low, high in zip([0, *cuts], [*cuts, ALL], strict=True)]
    targets = tuple((draw(st.sampled_from(["", *REVISIONS])), draw(TAGS), share) for share in shares)
    states = tuple(draw(st.sampled_from(STATES)) for _ in REVISIONS)
    return Case(draw(NAMES), draw(NAMES), targets, states)


@contextmanager
def opened() -> Iterator[Callable[[Case], None]]:
    """Return the check of a Route."""
    yield check


def check(case: Case) -> None:
    """Raise AssertionError for a violated property."""
    route = _route(case)
    revisions = {name: _revision(name, state) for name, state in zip(REVISIONS, case.states, strict=True) if state}
    latest = {"metadata": {"name": "m"}, "status": {"latestReadyRevisionName": REVISIONS[-1]}}
    traffic = build_traffic_config(route, {"m": latest}.get, revisions.get)
    if isinstance(traffic, BadTrafficTarget):
        assert traffic.status in ("False", "Unknown") and traffic.message.isprintable()
        return
    assert {one.revision for one in traffic.targets} <= {name for name, obj in revisions.items() if _is_ready(obj)}
    assert sum(target.percent for target in traffic.targets) == ALL
    ingress = make_ingress(route, traffic, lambda namespace, name: f"{name}.{namespace}.localhost")
    hosts, refused = without_collisions(virtual_hosts(ingress, lambda revision: 60.0))
    assert not refused
    for host in hosts:
        assert all(_is_host(name) for name in host.hosts), host.hosts
        assert all(sum(split.percent for split in one.splits) == ALL for one in host.routes), host
    assert {key.name for key in revisions_of(ingress)} <= set(revisions)
    json.loads(RouteMaker().make(hosts).content)


def _is_host(name: str) -> bool:
    return HOST.fullmatch(name) is not None and all(len(label) <= LONGEST_LABEL for label in name.split("."))


def _is_ready(obj: Object) -> bool:
    return bool(obj["status"]["conditions"][0]["status"] == "True")


def _route(case: Case) -> Object:
    entries: list[Object] = []
    for revision, tag, percent in case.targets:
        chosen: Object = {"revisionName": revision} if revision else {"configurationName": "m"}
        known = {entry.get("tag") for entry in entries}  # the doors see to both
        fits = tag not in known and len(names.hostname(case.name, tag)) <= LONGEST_LABEL
        entries.append({**chosen, "percent": percent, **({"tag": tag} if tag and fits else {})})
    metadata = {"name": case.name, "namespace": case.namespace, "uid": "u", "generation": 1}
    return {"metadata": metadata, "spec": {"traffic": entries}}


def _revision(name: str, state: str) -> Object:
    labels = {"serving.knative.dev/configuration": "m"}
    metadata = {"name": name, "namespace": "default", "generation": 1, "labels": labels}
    status = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": state}]}
    return {"metadata": metadata, "spec": {"containers": [{}]}, "status": status}


TARGETS = (Target("traffic of a Route", cases(), opened, everyday=150),)

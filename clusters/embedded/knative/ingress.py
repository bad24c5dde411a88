"""The Ingress of a Route.

Source: knative/serving `pkg/reconciler/route/resources/ingress.go` and `.../domains`, with tag-header-based-routing on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusters.base.objects import (
    INGRESS,
    LABEL_ROUTE,
    LABEL_VISIBILITY,
    ROUTE,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.traffic import DEFAULT_TARGET, H2C, RevisionTarget, TrafficConfig

Domain = Callable[[str, str], str]
"""Maps (namespace, name) to the public host, as in `magika.default.localhost`."""

HEADER_TAG = "Knative-Serving-Tag"
HEADER_DEFAULT_ROUTE = "Knative-Serving-Default-Route"
HEADER_REVISION = "Knative-Serving-Revision"
HEADER_NAMESPACE = "Knative-Serving-Namespace"

EXTERNAL, LOCAL = "ExternalIP", "ClusterLocal"
PORT_HTTP1, PORT_H2C = 80, 81  # of a Revision's public service
_LOCAL_SUFFIXES = (".cluster.local", ".svc.cluster.local")  # a cluster-local host is also valid without them


def is_local(route: Object) -> bool:
    """Return whether the Route is not exposed at the public gateway."""
    return labels_of(route).get(LABEL_VISIBILITY) == names.CLUSTER_LOCAL


def host(route: Object, tag: str, domain: Domain) -> str:
    """Return the host of the Route, or of its tag."""
    name, namespace = names.hostname(name_of(route), tag), namespace_of(route)
    return names.local_host(namespace, name) if is_local(route) else domain(namespace, name)


def make_ingress(route: Object, traffic: TrafficConfig, domain: Domain) -> Object:
    """Return the Ingress, with a cluster-local rule for each tag, and a public rule unless the Route is local."""
    return {
        "apiVersion": INGRESS.api_version,
        "kind": INGRESS.kind,
        "metadata": {
            "name": names.ingress(name_of(route)),
            "namespace": namespace_of(route),
            "labels": {
                **labels_of(route),
                LABEL_ROUTE: name_of(route),
                names.LABEL_ROUTE_NAMESPACE: namespace_of(route),
            },
            "annotations": {
                key: value for key, value in annotations_of(route).items() if key != names.ANNOTATION_LAST_APPLIED
            },
            "ownerReferences": [owner_reference(ROUTE, route)],
        },
        "spec": {"httpOption": "Enabled", "rules": _rules(route, traffic, domain)},
    }


def _rules(route: Object, traffic: TrafficConfig, domain: Domain) -> list[Object]:
    namespace = namespace_of(route)
    paths: dict[str, Object] = {
        tag: {"splits": [_split(namespace, target) for target in traffic.groups[tag] if target.percent]}
        for tag in sorted(traffic.groups)
    }
    rules: list[Object] = []
    for tag in paths:
        hostname = names.hostname(name_of(route), tag)
        local = names.local_host(namespace, hostname)
        shorter = {local.removesuffix(suffix) for suffix in _LOCAL_SUFFIXES if local.endswith(suffix)}
        tag_paths = _paths(tag, paths)
        rules.append(_rule(LOCAL, sorted({local} | shorter), tag_paths))
        if not is_local(route):
            rules.append(_rule(EXTERNAL, [domain(namespace, hostname)], tag_paths))
    return rules


def _rule(visibility: str, hosts: Sequence[str], paths: Sequence[Object]) -> Object:
    return {"hosts": list(hosts), "visibility": visibility, "http": {"paths": list(paths)}}


def _paths(tag: str, paths: Mapping[str, Object]) -> list[Object]:
    """Return the paths of a tag's host. The Route's own host has a path for each tag, by header, and the split."""
    if tag != DEFAULT_TARGET:
        return [{**paths[tag], "appendHeaders": {HEADER_TAG: tag}}]
    tagged = [
        {**path, "headers": {HEADER_TAG: {"exact": name}}} for name, path in paths.items() if name != DEFAULT_TARGET
    ]
    return [*tagged, {**paths[tag], "appendHeaders": {HEADER_DEFAULT_ROUTE: "true"}}]


def _split(namespace: str, target: RevisionTarget) -> Object:
    return {
        "serviceName": target.revision,
        "serviceNamespace": namespace,
        "servicePort": PORT_H2C if target.protocol == H2C else PORT_HTTP1,
        "percent": target.percent,
        "appendHeaders": {HEADER_REVISION: target.revision, HEADER_NAMESPACE: namespace},
    }

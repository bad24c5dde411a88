"""Ingress objects in the form of Knative's Route reconciler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.objects import INGRESS, Object


def ingress(name: str, splits: Mapping[str, int], tags: Mapping[str, str] | None = None, **changed: Any) -> Object:
    """The Ingress of Route `name`: `splits` revision → percent, `tags` tag → revision. `namespace` may be given."""
    namespace = str(changed.pop("namespace", "default"))
    tags = tags or {}
    tagged = [_path(namespace, {revision: 100}, tag) for tag, revision in tags.items()]
    main = [*tagged, _path(namespace, splits) | {"appendHeaders": {"Knative-Serving-Default-Route": "true"}}]
    rules = [
        _rule("ClusterLocal", f"{name}.{namespace}.svc.cluster.local", main),
        _rule("ExternalIP", f"{name}.{namespace}.localhost", main),
    ]
    for tag, revision in tags.items():
        path = _path(namespace, {revision: 100}) | {"appendHeaders": {"Knative-Serving-Tag": tag}}
        rules.append(_rule("ExternalIP", f"{tag}-{name}.{namespace}.localhost", [path]))
    return {
        "apiVersion": INGRESS.api_version,
        "kind": INGRESS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"httpOption": "Enabled", "rules": rules},
        **changed,
    }


def _rule(visibility: str, host: str, paths: list[Object]) -> Object:
    return {"hosts": [host], "visibility": visibility, "http": {"paths": paths}}


def _path(namespace: str, splits: Mapping[str, int], tag: str = "") -> Object:
    made: Object = {
        "splits": [
            {
                "serviceName": revision,
                "serviceNamespace": namespace,
                "servicePort": 80,
                "percent": percent,
                "appendHeaders": {"Knative-Serving-Revision": revision, "Knative-Serving-Namespace": namespace},
            }
            for revision, percent in splits.items()
        ]
    }
    return made | ({"headers": {"Knative-Serving-Tag": {"exact": tag}}} if tag else {})

"""RayServices by KubeRay, with an application that tells its version."""

from __future__ import annotations

from typing import Final

from clusters.base.objects import Kind, Object

RAY_SERVICE: Final = Kind("ray.io", "v1", "RayService", "rayservices")
PREFIX: Final = "/rank"
MODULE: Final = "ranker.py"
CODE: Final = """\
from ray import serve
from starlette.requests import Request


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Ranker:
    def __init__(self, version):
        self.version = version

    async def __call__(self, request: Request):
        body = (await request.body()).decode()
        return {"version": self.version, "path": request.url.path, "body": body}


def build(args):
    return Ranker.bind(args["version"])
"""
_CONFIG: Final = """\
applications:
- name: ranker
  import_path: ranker:build
  route_prefix: {prefix}
  args: {{version: "{version}"}}
"""


def code(name: str, namespace: str) -> Object:
    """Return a ConfigMap with the module of the application."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {MODULE: CODE}}


def ray_service(name: str, namespace: str, version: str, image: str, config_map: str) -> Object:
    """Return a RayService whose cluster is a head only, with the application of this version at PREFIX."""
    head: Object = {
        "name": "ray-head",
        "image": image,
        "env": [
            {"name": "PYTHONPATH", "value": "/app"},
            {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
            {"name": "RAY_AUTH_MODE", "value": "disabled"},  # KubeRay's own default, unlike that of Ray 2.60
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [{"name": "app", "mountPath": "/app", "readOnly": True}],
    }
    pod = {"containers": [head], "volumes": [{"name": "app", "configMap": {"name": config_map}}]}
    start = {"num-cpus": "1", "object-store-memory": "100000000"}
    return {
        "apiVersion": RAY_SERVICE.api_version,
        "kind": RAY_SERVICE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serveConfigV2": _CONFIG.format(prefix=PREFIX, version=version),
            "rayClusterConfig": {
                "rayVersion": "2.60.0",
                "headGroupSpec": {"rayStartParams": start, "template": {"spec": pod}},
            },
        },
    }


def url_of(name: str) -> str:
    """Return the URL of the application for Models of the same namespace: that of KubeRay's Service for the proxies."""
    return f"http://{name}-serve-svc:8000{PREFIX}"

"""Configurations and statuses of Ray Serve's applications. Pure, but for reading `serve.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.strict_yaml import LoadError, load_documents

CONFIG: Final = "serve.yaml"
DEFAULT: Final = "app:app"
"""The import path of the application without a configuration."""
FAILED: Final = ("DEPLOY_FAILED",)
RUNNING: Final = "RUNNING"
LONGEST_REASON: Final = 900  # characters
_OWN: Final = ("proxy_location", "http_options", "grpc_options")
"""Members of a configuration that the model server determines."""
_DEFAULT_ONGOING: Final = 5  # Ray Serve's


class WrongConfig(KnodelError):
    """Raised for a `serve.yaml` that is not a configuration of Ray Serve."""


class NotRunning(KnodelError):
    """Raised when an application can never run."""


def deploy_config(folder: Path, configured: bool, application: str) -> dict[str, Any]:
    """Return the configuration to deploy: `serve.yaml`, or the application at an import path. Raises WrongConfig."""
    if not configured:
        given: Any = {"applications": [{"name": "default", "route_prefix": "/", "import_path": application or DEFAULT}]}
    else:
        try:
            documents = load_documents((folder / CONFIG).read_text(), CONFIG)
        except (OSError, ValueError, LoadError) as error:
            raise WrongConfig(f"{CONFIG} cannot be read: {error}") from error
        given = documents[0] if len(documents) == 1 else None
    if not isinstance(given, dict) or not isinstance(given.get("applications"), list) or not given["applications"]:
        raise WrongConfig(f"{CONFIG} has no applications: write one with `serve build app:app -o {CONFIG}`")
    kept = {name: value for name, value in given.items() if name not in _OWN}
    return {"logging_config": {"enable_access_log": False}, **kept}  # the model server logs requests


def check_statuses(details: Mapping[str, Any]) -> str:
    """Return why an application does not run yet, "" if all run. Raises NotRunning for one that has failed."""
    reasons = []
    for name, application in details.get("applications", {}).items():
        status = _text(application.get("status"))
        if status == RUNNING:
            continue
        messages = [application.get("message") or ""]
        messages += [one.get("message") or "" for one in application.get("deployments", {}).values()]
        told = one_line(" ".join(filter(None, messages)), LONGEST_REASON)
        reason = f"the application {name} is {status}" + (f": {told}" if told else "")
        if status in FAILED:
            raise NotRunning(reason)
        reasons.append(reason)
    return "; ".join(reasons)


def missing_resources(details: Mapping[str, Any], total: Mapping[str, float]) -> str:
    """Return which resources all deployments together need beyond `total`, "" if they are enough."""
    needed: dict[str, float] = {}
    for application in details.get("applications", {}).values():
        for deployment in application.get("deployments", {}).values():
            replicas = int(deployment.get("target_num_replicas") or 0)
            for resource, amount in (deployment.get("required_resources") or {}).items():
                needed[resource] = needed.get(resource, 0.0) + replicas * float(amount)
    for resource, amount in needed.items():
        if amount > total.get(resource, 0.0):
            remedy = (
                "raise resources.cpu, or set num_cpus in ray_actor_options of the deployments" if resource == "CPU"
                else "change ray_actor_options of the deployments"
            )  # fmt: skip
            return f"the deployments need {amount:g} {resource}, and Ray has {total.get(resource, 0.0):g}: {remedy}"
    return ""


def missing_nodes(nodes: Iterable[Mapping[str, Any]], wanted: int) -> str:
    """Return how many workers have joined if some have not, "" if all have. `nodes` are those of `ray.nodes()`."""
    alive = sum(bool(node.get("Alive")) for node in nodes)
    return "" if alive >= wanted else f"{max(0, alive - 1)} of {wanted - 1} workers have joined"


def total_slots(details: Mapping[str, Any]) -> int:
    """Return how many requests the ingress deployments of all applications take at once, at full scale."""
    slots = 0
    for application in details.get("applications", {}).values():
        deployments = application.get("deployments", {})
        ingress = (application.get("deployment_topology") or {}).get("ingress_deployment")
        for name in [ingress] if ingress in deployments else deployments:
            config = deployments[name].get("deployment_config") or {}
            scaling = config.get("autoscaling_config")
            most = scaling.get("max_replicas") if isinstance(scaling, Mapping) else config.get("num_replicas")
            slots += int(config.get("max_ongoing_requests") or _DEFAULT_ONGOING) * (
                most if isinstance(most, int) else 1
            )
    return max(1, slots)


def _text(status: Any) -> str:
    return str(getattr(status, "value", status))

"""Turn the facts about Models, engines, stores and event sources into findings of `knodel doctor`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from autoscaler.reconciler.status import WAITING_FOR_GPU
from clusters.base.distribution import install_command
from clusters.base.objects import Object, condition_of, key_of, name_of, namespace_of
from serving.cli.doctor.findings import Finding
from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import FORMATS, ModelFormat, find_format
from serving.types.lifecycle import REPLICAS_STARTED, WORKERS_READY
from serving.types.model import format_of

SHOWN: Final = 5
"""Number of items that a finding lists."""
SCHEME_PORTS: Final = {"http": 80, "https": 443, "oci": 443}
"""Schemes of URIs with the host of the artifact; for other schemes it depends on the credentials."""
NO_NODE: Final = "Unschedulable"
"""Reason of a replica for which no node has room (scheduler of Kubernetes)."""
PULL_FAULTS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Waiting reasons of a container whose image cannot be pulled (kubelet of Kubernetes)."""


def check_models(models: Sequence[Object]) -> Finding:
    """Check that no Model has failed; one with Ready Unknown is being deployed."""
    failed = [
        (one, f"{key_of(one)} ({condition.get('reason') or 'no reason given'})")
        for one in models
        if (condition := condition_of(one, "Ready") or {}).get("status") == "False"
    ]
    if failed:
        remedy = f"`knodel describe {_argument(failed[0][0])}` shows the reason and the remedy"
        return Finding("models", False, f"not ready: {first_few([words for _, words in failed])}", remedy)
    return Finding("models", True, f"{len(models)}, none failed" if models else "none yet")


def check_replicas(models: Sequence[Object]) -> Finding:
    """Check that replicas start, of versions that have or will get traffic: another one may find no node."""
    stuck = [
        (one, condition)
        for one in models
        if (condition := condition_of(one, REPLICAS_STARTED) or {}).get("status") == "False"
        and condition.get("reason") != WAITING_FOR_GPU
        and _is_used(one, str(condition.get("message")).partition(":")[0])
    ]
    if not stuck:
        return Finding("replicas", True, "all started")
    why, argument = stuck[0][1], _argument(stuck[0][0])
    remedy = f"`knodel explain {argument}` shows why its replicas do not start"
    if why.get("reason") == NO_NODE:
        remedy += "; `maxReplicas` limits their number to the resources of the cluster"
    else:
        remedy += f", `knodel logs {argument}` shows their logs"
    words = [f"{key_of(one)} ({condition.get('reason')}: {condition.get('message')})" for one, condition in stuck]
    return Finding("replicas", False, f"do not start: {first_few(words)}", remedy)


def check_workers(models: Sequence[Object]) -> Finding:
    """Check that the replicas of several Pods have their workers."""
    found = [
        (one, f"{key_of(one)} ({condition.get('message')})")
        for one in models
        if (condition := condition_of(one, WORKERS_READY) or {}).get("status") == "False"
    ]
    if not found:
        return Finding("workers", True, "all ready")
    remedy = f"`knodel describe {_argument(found[0][0])}` shows the group"
    return Finding("workers", False, f"missing: {first_few([words for _, words in found])}", remedy)


def _is_used(model: Object, revision: str) -> bool:
    """Return whether the revision has traffic, or will get it when it is ready.

    The newest one will, unless its rollout was rolled back, or `spec.traffic` selects other revisions.
    """
    status = model.get("status") or {}
    if any(entry.get("revision") == revision and entry.get("percent") for entry in status.get("traffic") or ()):
        return True
    rollout = status.get("rollout") or {}
    was_refused = rollout.get("candidate") == revision and rollout.get("phase") == "RolledBack"
    return revision == status.get("latestCreatedRevision") and not was_refused and not model["spec"].get("traffic")


def _argument(model: Object) -> str:
    """Return the arguments of verbs that select the Model, in any namespace."""
    return f"{name_of(model)} -n {namespace_of(model)}"


def check_engines(models: Sequence[Object], missing: Collection[str]) -> Finding:
    """Check that the engines of all Models with a known format are installed.

    `missing`: the packages of engines that are not installed.
    """
    wanting: dict[str, list[str]] = {}
    for model in models:
        known = _format_of(model)
        if known is not None and known.package in missing:
            wanting.setdefault(known.extra or known.package, []).append(str(key_of(model)))
    if wanting:
        users = "; ".join(f"{extra} ({first_few(names)})" for extra, names in wanting.items())
        programs = {made.package for made in FORMATS.values() if not made.extra}
        extras = ",".join(extra for extra in wanting if extra not in programs)
        commands = [f"`{install_command(f'knodel[{extras}]')}`"] if extras else []
        remedy = " and ".join([*commands, *(f"install {one}" for one in wanting if one in programs)])
        remedy = f"{remedy} on the machine of the platform"
        return Finding("engines", False, f"required but not installed: {users}", remedy)
    return Finding("engines", True, "installed for all Models")


def _format_of(model: Object) -> ModelFormat | None:
    """Return the format in the spec, else the one that the server detected, else that of the file in the URI."""
    if named := format_of(model):
        return FORMATS.get(named)
    try:
        return find_format("", [str(model["spec"].get("storageUri", "")).partition("?")[0]])
    except UnknownFormat:
        return None


def artifact_hosts(models: Sequence[Object]) -> dict[tuple[str, int], list[str]]:
    """Return the servers of artifacts whose URIs have a host: (host, port) → the Models that need it."""
    found: dict[tuple[str, int], list[str]] = {}
    for model in models:
        uri = _split(str(model["spec"].get("storageUri", "")))
        if uri is not None and uri.hostname and uri.scheme in SCHEME_PORTS:
            place = (uri.hostname, uri.port or SCHEME_PORTS[uri.scheme])
            found.setdefault(place, []).append(str(key_of(model)))
    return found


def check_stores(users: Mapping[tuple[str, int], Sequence[str]], faults: Mapping[tuple[str, int], str]) -> Finding:
    """Check that each artifact server can be reached. `faults`: why not, for those that cannot."""
    if faults:
        words = "; ".join(
            f"{host}:{port} ({why}; {first_few(users[host, port])})" for (host, port), why in faults.items()
        )
        remedy = "check the host name, the network and the server: new replicas need it to start"
        return Finding("model stores", False, f"cannot be reached: {words}", remedy)
    return Finding("model stores", True, f"{len(users)} reached" if users else "no URI has a host")


def check_sources(sources: Sequence[Object]) -> Finding:
    """Check that each EventSource is Ready. To have none is not a problem."""
    if not sources:
        remedy = (
            "`knodel events allow SOURCE --models NAME --storage-prefix PREFIX` allows trainings to redeploy models"
        )
        return Finding("events", True, "no EventSource: every event is refused with 401", remedy)
    broken = [
        f"{key_of(one)} ({condition.get('reason') or 'no reason given'})"
        for one in sources
        if (condition := condition_of(one, "Ready") or {}).get("status") == "False"
    ]
    if broken:
        remedy = "`knodel events sources -A` shows the reason and the remedy"
        return Finding("events", False, f"EventSources that are not ready: {first_few(broken)}", remedy)
    return Finding("events", True, f"{len(sources)} EventSources")


def check_images(pods: Sequence[Object]) -> Finding:
    """Check that the images of all Pods could be pulled."""
    stuck = {
        str(status.get("image", "?")): f"{key_of(pod)}: {waiting['reason']}"
        for pod in pods
        for part in ("initContainerStatuses", "containerStatuses")
        for status in (pod.get("status") or {}).get(part) or ()
        if (waiting := (status.get("state") or {}).get("waiting") or {}).get("reason") in PULL_FAULTS
    }
    if stuck:
        words = first_few([f"{image} ({why})" for image, why in stuck.items()])
        remedy = "check the name of the image, the registry from the nodes, and imagePullSecrets"
        return Finding("images", False, f"not pulled: {words}", remedy)
    return Finding("images", True, f"pulled, for {len(pods)} Pods")


def first_few(words: Sequence[str]) -> str:
    """Return the first `SHOWN` words, and the number of the others."""
    others = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + others


def _split(uri: str) -> SplitResult | None:
    """Split a URI; None if it is invalid, which the conditions of its Model report."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts

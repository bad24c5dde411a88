"""What `knodel doctor` judges of what was deployed: Models, engines, stores, who may send events. Pure, as `doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from clusters.base.objects import Object, condition_of, key_of, name_of, namespace_of
from serving.cli.doctor.findings import Finding
from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import FORMATS, Format, find_format
from serving.types.lifecycle import REPLICAS_STARTED

SHOWN: Final = 5
"""Things that one finding names; how many others there are it says."""
SCHEME_PORTS: Final = {"http": 80, "https": 443, "oci": 443}
"""Schemes whose URIs name the host that has the artifact; where the others are is a matter of credentials."""
NO_NODE: Final = "Unschedulable"
"""Reason of a replica for which no node has room (Kubernetes' scheduler)."""
PULL_FAULTS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Why a container waits when its image does not come (Kubernetes' kubelet)."""


def judge_models(models: Sequence[Object]) -> Finding:
    """Whether all are Ready, or on their way: a Model that is `Unknown` is being made."""
    failed = [
        (one, f"{key_of(one)} ({condition.get('reason') or 'no reason given'})")
        for one in models
        if (condition := condition_of(one, "Ready") or {}).get("status") == "False"
    ]
    if failed:
        remedy = f"`knodel describe {_named(failed[0][0])}` shows the reason and the remedy"
        return Finding("models", False, f"not ready: {some([words for _, words in failed])}", remedy)
    return Finding("models", True, f"{len(models)}, none failed" if models else "none yet")


def judge_replicas(models: Sequence[Object]) -> Finding:
    """Whether the replicas of versions that have or get traffic start: one more may find no node."""
    stuck = [
        (one, condition)
        for one in models
        if (condition := condition_of(one, REPLICAS_STARTED) or {}).get("status") == "False"
        and _is_used(one, str(condition.get("message")).partition(":")[0])
    ]
    if not stuck:
        return Finding("replicas", True, "none is kept from starting")
    why, named = stuck[0][1], _named(stuck[0][0])
    remedy = f"`knodel explain {named}` shows what its replicas wait for"
    if why.get("reason") == NO_NODE:
        remedy += "; `maxReplicas` limits a model to the room that there is"
    else:
        remedy += f", `knodel logs {named}` what they printed"
    words = [f"{key_of(one)} ({condition.get('reason')}: {condition.get('message')})" for one, condition in stuck]
    return Finding("replicas", False, f"do not start: {some(words)}", remedy)


def _is_used(model: Object, revision: str) -> bool:
    """Return whether the revision has traffic, or gets it once it is ready.

    The newest one does, unless its rollout has ended without it, or `spec.traffic` names others.
    """
    status = model.get("status") or {}
    if any(entry.get("revision") == revision and entry.get("percent") for entry in status.get("traffic") or ()):
        return True
    rollout = status.get("rollout") or {}
    was_refused = rollout.get("candidate") == revision and rollout.get("phase") == "RolledBack"
    return revision == status.get("latestCreatedRevision") and not was_refused and not model["spec"].get("traffic")


def _named(model: Object) -> str:
    """The arguments by which verbs find the Model, from whatever namespace."""
    return f"{name_of(model)} -n {namespace_of(model)}"


def judge_engines(models: Sequence[Object], missing: Sequence[str]) -> Finding:
    """Judge whether the engines of all Models are installed, as far as their formats are known.

    `missing`: packages of engines that are not.
    """
    wanting: dict[str, list[str]] = {}
    for model in models:
        known = _format_of(model)
        if known is not None and known.package in missing:
            wanting.setdefault(known.extra, []).append(str(key_of(model)))
    if wanting:
        users = "; ".join(f"{extra} ({some(names)})" for extra, names in wanting.items())
        remedy = f"`pip install 'knodel[{','.join(wanting)}]'` where the platform runs"
        return Finding("engines", False, f"not installed, but needed: {users}", remedy)
    return Finding("engines", True, "those of all Models are installed")


def _format_of(model: Object) -> Format | None:
    """Return the format that the Model names, or that its server found, or that the file of its URI has."""
    named = model["spec"].get("modelFormat") or model.get("status", {}).get("modelFormat")
    if named:
        return FORMATS.get(str(named))
    try:
        return find_format("", [str(model["spec"].get("storageUri", "")).partition("?")[0]])
    except UnknownFormat:
        return None


def places(models: Sequence[Object]) -> dict[tuple[str, int], list[str]]:
    """Where artifacts come from, as far as their URIs name it: (host, port) → the Models that need it."""
    found: dict[tuple[str, int], list[str]] = {}
    for model in models:
        uri = _split(str(model["spec"].get("storageUri", "")))
        if uri is not None and uri.hostname and uri.scheme in SCHEME_PORTS:
            place = (uri.hostname, uri.port or SCHEME_PORTS[uri.scheme])
            found.setdefault(place, []).append(str(key_of(model)))
    return found


def judge_stores(users: Mapping[tuple[str, int], Sequence[str]], faults: Mapping[tuple[str, int], str]) -> Finding:
    """Whether each place of artifacts can be reached. `faults`: why not, of those that cannot."""
    if faults:
        words = "; ".join(f"{host}:{port} ({why}; {some(users[host, port])})" for (host, port), why in faults.items())
        remedy = "check its name, the network and its server: replicas that start need it"
        return Finding("model stores", False, f"not to be reached: {words}", remedy)
    return Finding("model stores", True, f"{len(users)} reached" if users else "none that a URI names")


def judge_sources(sources: Sequence[Object]) -> Finding:
    """Whether anybody may send events, and whether each EventSource can be used. To have none is no fault."""
    if not sources:
        remedy = "`knodel events allow SOURCE --models NAME --storage-prefix PREFIX` lets trainings redeploy"
        return Finding("events", True, "no EventSource: every event is refused with 401", remedy)
    broken = [
        f"{key_of(one)} ({condition.get('reason') or 'no reason given'})"
        for one in sources
        if (condition := condition_of(one, "Ready") or {}).get("status") == "False"
    ]
    if broken:
        remedy = "`knodel events sources -A` shows the reason and the remedy"
        return Finding("events", False, f"EventSources that cannot be used: {some(broken)}", remedy)
    return Finding("events", True, f"{len(sources)} EventSources")


def judge_images(pods: Sequence[Object]) -> Finding:
    """Whether the images of all Pods came from their registries."""
    stuck = {
        str(status.get("image", "?")): f"{key_of(pod)}: {waiting['reason']}"
        for pod in pods
        for status in _container_statuses(pod)
        if (waiting := (status.get("state") or {}).get("waiting") or {}).get("reason") in PULL_FAULTS
    }
    if stuck:
        words = some([f"{image} ({why})" for image, why in stuck.items()])
        remedy = "check the image's name, its registry as the nodes reach it, and imagePullSecrets"
        return Finding("images", False, f"not pulled: {words}", remedy)
    return Finding("images", True, f"pulled, for {len(pods)} Pods")


def some(words: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    others = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + others


def _split(uri: str) -> SplitResult | None:
    """The parts of a URI; None where they make no sense, which its Model says itself."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _container_statuses(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]

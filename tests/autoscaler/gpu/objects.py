"""Nodes, Pods and objects of Dynamic Resource Allocation with GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.objects import Object

GPU = "nvidia.com/gpu"
H100 = "NVIDIA-H100-80GB-HBM3"
DRIVER = "gpu.nvidia.com"


def node(
    name: str, gpus: int | str | Mapping[str, Any] = 8, *, product: str = H100, ready: str = "True", **spec: Any
) -> Object:
    """Return a Node with these allocatable GPUs and the label of NVIDIA's labeller."""
    allocatable = {"cpu": "64", **(gpus if isinstance(gpus, Mapping) else {GPU: str(gpus)})}
    labels = {"nvidia.com/gpu.product": product, "kubernetes.io/hostname": name} if product else {}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(
    name: str, on: str = "", gpus: int | Mapping[str, Any] = 1, *, namespace: str = "team", model: str = "",
    owner: tuple[str, str] | None = ("PyTorchJob", "train"), phase: str = "Running", labels: Mapping[str, str] = {},
    **spec: Any,
) -> Object:  # fmt: skip
    """Return a Pod with one container that requests GPUs, on the node `on`."""
    limits = dict(gpus) if isinstance(gpus, Mapping) else {GPU: str(gpus)}
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": dict(labels)}
    if model:
        metadata["labels"]["knodel.dev/model"] = model
    if owner:
        kind, named = owner
        metadata["ownerReferences"] = [{"kind": kind, "name": named, "uid": f"uid-{named}", "controller": True}]
    containers = [{"name": "main", "resources": {"limits": {"cpu": "2", **limits}}}]
    found = {"containers": containers, **({"nodeName": on} if on else {}), **spec}
    return {"metadata": metadata, "spec": found, "status": {"phase": phase}}


def device_class(*expressions: str, resource: str = GPU) -> Object:
    """Return a DeviceClass that stands for a resource."""
    selectors = [{"cel": {"expression": one}} for one in expressions]
    spec = {"selectors": selectors, **({"extendedResourceName": resource} if resource else {})}
    return {"metadata": {"name": "whole"}, "spec": spec}


def resource_slice(on: str, *names: str, generation: int = 1, kind: str = "gpu", driver: str = DRIVER) -> Object:
    """Return a ResourceSlice with devices of a node."""
    attributes = {"type": {"string": kind}, "productName": {"string": H100}, "index": {"int": 0}}
    devices = [{"name": name, "attributes": attributes} for name in names]
    spec = {"driver": driver, "nodeName": on, "pool": {"name": on, "generation": generation}, "devices": devices}
    return {"metadata": {"name": f"{on}-{generation}"}, "spec": spec}


def claim(name: str, on: str, *devices: str, pods: tuple[str, ...] = (), admin: bool = False) -> Object:
    """Return a ResourceClaim with allocated devices, reserved for these Pods."""
    results = [{"driver": DRIVER, "pool": on, "device": one, "adminAccess": admin} for one in devices]
    users = [{"resource": "pods", "name": one, "uid": f"uid-{one}"} for one in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": status}

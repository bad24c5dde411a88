"""Nodes and Pods that are objects only: KWOK plays their kubelets, everything else is the real control plane.

Pods with a taint of a resource's name are kept off these nodes unless they request the resource: the admission plugin
ExtendedResourceToleration of the testbed adds the toleration.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import NODE, Object, name_of
from tests.cluster.place import MANAGER
from tests.testbed.paths import standard
from tests.testbed.upstream import sources
from tests.testbed.versions import KWOK

ADDRESSES: Final = "198.19.64.1/18"
"""Of Pods; nothing answers there, and nothing is sent out (`tests.testbed.addresses.TEST_RANGE`)."""
FAKE: Final = {"kwok.x-k8s.io/node": "fake"}
MODULE: Final = "sigs.k8s.io/kwok"
START: Final = (3000, 9000)
"""ms from a Pod's binding until it is ready, drawn evenly."""
TRAINER_END: Final = 5000
"""ms from the deletion of a Job's Pod until it has ended."""
SERVER_END: Final = 1000


def is_built() -> bool:
    """Return whether the testbed has the program (`python -m tests.testbed build --kwok`)."""
    return (standard().binaries / "kwok").exists()


@asynccontextmanager
async def fake_nodes(
    cluster: Cluster, kubeconfig: Path, folder: Path, resource: str, sizes: Sequence[int]
) -> AsyncIterator[None]:
    """Nodes of these sizes in units of the resource, until the end of the block."""
    config = folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all([_node_stage(), *_pod_stages()]))
    arguments = [
        f"--kubeconfig={kubeconfig}", f"--config={config}", f"--cidr={ADDRESSES}", "--node-lease-duration-seconds=40",
        "--manage-nodes-with-annotation-selector=" + ",".join(f"{key}={value}" for key, value in FAKE.items()),
    ]  # fmt: skip
    with (folder / "kwok.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            standard().binaries / "kwok", *arguments, stdout=log, stderr=log, env=dict(os.environ)
        )
        nodes = [_node(f"kwok-{number:03}", resource, size) for number, size in enumerate(sizes)]
        try:
            for node in nodes:
                await cluster.create(NODE, node, manager=MANAGER)
            yield
        finally:
            for node in nodes:
                with suppress(NotFound):
                    await cluster.delete(NODE, name_of(node))
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def _node(name: str, resource: str, size: int) -> Object:
    amounts = {"cpu": "1000", "memory": "1Ti", "pods": "1000", resource: str(size)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(FAKE), "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": resource, "value": "present", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def _node_stage() -> Object:
    """Return upstream's stage that makes a node Ready."""
    folder = sources(KWOK, [MODULE])[MODULE]
    made: Object = yaml.safe_load((folder / "kustomize/stage/node/fast/node-initialize.yaml").read_text())
    return made


def _pod_stages() -> list[Object]:
    least, most = START
    deleted, living = _exists(".metadata.deletionTimestamp"), _exists(".metadata.deletionTimestamp", False)
    of_job = {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}
    ended = {"key": ".status.phase", "operator": "In", "values": ["Failed", "Succeeded"]}
    runs = {"key": ".status.phase", "operator": "NotIn", "values": ["Failed", "Succeeded"]}
    other = {**of_job, "operator": "NotIn"}
    gone = [deleted, of_job, ended, _exists(".metadata.finalizers", False)]
    return [
        _stage("pod-start", [living, _exists(".status.podIP", False)], least, most, {"statusTemplate": _RUNNING}),
        # The controller of Jobs releases a deleted Pod once it has ended, not before.
        _stage("trainer-end", [deleted, of_job, runs], TRAINER_END, TRAINER_END, {"statusTemplate": "phase: Failed\n"}),
        _stage("trainer-gone", gone, 0, 0, {"delete": True}),
        _stage("server-end", [deleted, other], SERVER_END, SERVER_END, {"delete": True}),
    ]


def _exists(path: str, there: bool = True) -> Object:
    return {"key": path, "operator": "Exists" if there else "DoesNotExist"}


def _stage(name: str, conditions: Sequence[Mapping[str, Any]], least: int, most: int, then: Object) -> Object:
    delay = {"durationMilliseconds": least, "jitterDurationMilliseconds": most} if most else {}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": list(conditions)},
            "delay": delay,
            "next": then,
        },
    }


_RUNNING: Final = """
{{ $now := Now }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ $type }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""

"""Claims over a real embedded cluster with its workload controllers; the test plays Knative, the pool manager and the
kubelet.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.assignment import MemberAssignment
from autoscaler.warmpool.claims.caller import LoadCallFailed, LoadCallRefused
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD, DIGESTS_VARIABLE, DIGESTS_VOLUME, LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from autoscaler.warmpool.conversion import make_member
from clusters.base.clock import SystemClock
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    POD,
    REPLICA_SET,
    WARM_POOL,
    Key,
    Kind,
    Object,
    controller_of,
    is_deleting,
    labels_of,
    name_of,
    timestamp,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.admission import Validator
from clusters.embedded.workloads import Workloads
from clusters.net.endpoints import Endpoint
from clusters.runtime.informer import Informers
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work
from tests.support.wait import eventually

TEST = "test"
NAMESPACE = "default"
POOL = "small"
KEYS = PoolKey(b"a key that all processes have")
SETTINGS = WarmStart()
LOAD = {"name": "iris", "storageUri": "file:///models/iris", "digest": "", "slots": 4, "timeout": 300, "cpu": "1"}


class Acks:
    """A LoadCaller whose members answer at once, except `failing` ones; models of `senseless` revisions are always
    rejected.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []  # Pod, token, revision
        self.digests: list[str] = []
        self.failing: set[str] = set()
        self.senseless: set[str] = set()
        self.on_call: Callable[[str], Awaitable[None]] | None = None

    async def load(self, endpoint: Endpoint, token: str, assignment: MemberAssignment) -> None:
        pod = endpoint.pod.partition("/")[2]
        self.calls.append((pod, token, str(assignment.parameters["revision"])))
        self.digests.append(str(assignment.parameters.get("digest", "")))
        if self.on_call is not None:
            await self.on_call(pod)
        if pod in self.failing:
            raise LoadCallFailed(f"{pod} answers 500")
        if assignment.parameters["revision"] in self.senseless:
            raise LoadCallRefused(f"{pod} answers 400")

    async def close(self) -> None:
        self.calls.clear()

    @property
    def pods(self) -> list[str]:
        return [pod for pod, _, _ in self.calls]


def deployment(revision: str = "iris-00001", namespace: str = NAMESPACE, replicas: int = 0, **changes: Any) -> Object:
    """Return a Deployment as Knative makes it for a Revision; `changes`: `image`, `load` (the annotation's text).

    With `records`, its Model specifies no digest: replicas mount the recorded digest of the first one.
    """
    name = {"app": revision, LABEL_REVISION: revision, LABEL_REVISION_UID: f"uid-of-{revision}"}
    container: Object = {
        "name": "server",
        "image": changes.get("image", "server:1"),
        "args": ["--name", revision],
        "ports": [{"name": "user-port", "containerPort": 8080}],
        "env": [{"name": "PORT", "value": "8080"}, {"name": "K_REVISION", "value": revision}],
    }
    spec: Object = {"containers": [container]}
    if changes.get("records"):
        container["env"].append({"name": DIGESTS_VARIABLE, "value": "/etc/knodel/digests"})
        container["volumeMounts"] = [{"name": DIGESTS_VOLUME, "mountPath": "/etc/knodel/digests", "readOnly": True}]
        record = {"name": f"knodel-digests-{revision}", "optional": True}
        spec["volumes"] = [{"name": DIGESTS_VOLUME, "configMap": record}]
    load = changes.get("load", json.dumps(LOAD))
    annotations = {"team": "blue"} | ({ANNOTATION_LOAD: load} if load else {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{revision}-deployment", "namespace": namespace, "labels": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {LABEL_REVISION_UID: f"uid-of-{revision}"}},
            "template": {"metadata": {"labels": name, "annotations": annotations}, "spec": spec},
        },
    }


SEED = deployment("knodel-pool-small-00001", load="")


class World:
    """The cluster with everything except claims."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clock = SteppedClock()
        self.caller = Acks()
        self.steps: list[ClaimStep] = []
        self.formats: dict[Key, str] = {}
        """What servers found, by revision; a revision that is not here is of the format ONNX."""
        self._made = 0
        self._reports = 0

    # --- Knative and the pool manager ---

    async def deploy(self, revision: str = "iris-00001", namespace: str = NAMESPACE, **changes: Any) -> Key:
        """Create a revision with its Deployment, and wait for the ReplicaSet."""
        made = await self.cluster.create(DEPLOYMENT, deployment(revision, namespace, **changes), manager=TEST)

        async def followed() -> bool:
            sets = (await self.cluster.list(REPLICA_SET, namespace)).items
            return any((controller_of(one) or {}).get("uid") == made["metadata"]["uid"] for one in sets)

        await eventually(followed)
        return Key(namespace, revision)

    async def pool(self, namespace: str = NAMESPACE, **spec: Any) -> None:
        made = {"metadata": {"name": POOL, "namespace": namespace}, "spec": {"size": 1, **spec}}
        await self.cluster.create(WARM_POOL, made, manager=TEST)

    async def members(self, number: int, namespace: str = NAMESPACE, **changes: Any) -> list[str]:
        """Create free members that become ready in order; `changes`: `image`, `ready`, `restarts`, `keys`,
        `model_format`.
        """
        return [await self._member(namespace, **changes) for _ in range(number)]

    async def _member(
        self,
        namespace: str,
        *,
        image: str = "server:1",
        ready: bool = True,
        restarts: int = 0,
        keys: PoolKey = KEYS,
        model_format: str = "",
    ) -> str:
        self._made += 1
        name = f"{POOL}-{self._made:04}"
        seed = deployment(f"knodel-pool-{POOL}-00001", namespace, image=image, load="")
        seed["spec"]["template"]["spec"]["containers"][0]["args"] = [
            "--pool",
            *(["--format", model_format] if model_format else []),
        ]
        pool = await self.cluster.get(WARM_POOL, POOL, namespace)
        await self.cluster.create(POD, make_member(pool, seed, name, keys), manager=TEST)
        await self.report(name, namespace, ready=ready, restarts=restarts)
        return name

    # --- the kubelet ---

    async def report(self, pod: str, namespace: str = NAMESPACE, *, ready: bool = True, restarts: int = 0) -> None:
        """Report the Pod as running on a node; each later report is a second later."""
        self._reports += 1
        since = timestamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._reports))
        bound = {"spec": {"nodeName": "node"}}
        await self.cluster.patch(POD, pod, bound, namespace, manager=TEST)
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}],
            "containerStatuses": [{"name": "server", "restartCount": restarts}],
        }
        await self.cluster.patch(POD, pod, {"status": status}, namespace, manager=TEST, subresource="status")

    # --- looking and scaling ---

    async def deployment(self, key: Key) -> Object:
        return await self.cluster.get(DEPLOYMENT, f"{key.name}-deployment", key.namespace)

    async def scale(self, key: Key, replicas: int) -> None:
        """Scale as the reconciler does; the ReplicaSet follows."""
        await self.cluster.scale(DEPLOYMENT, f"{key.name}-deployment", key.namespace, replicas, manager=TEST)

    async def followed(self, key: Key, replicas: int) -> None:
        async def same() -> bool:
            return int((await self.replica_set(key))["spec"]["replicas"]) == replicas

        await eventually(same)

    async def replica_set(self, key: Key) -> Object:
        sets = (await self.cluster.list(REPLICA_SET, key.namespace, f"{LABEL_REVISION}={key.name}")).items
        return next(iter(sets))

    async def pod(self, name: str, namespace: str = NAMESPACE) -> Object:
        return await self.cluster.get(POD, name, namespace)

    async def pods(self, namespace: str = NAMESPACE, selector: str = "") -> list[Object]:
        """Return the Pods that are not being deleted."""
        return [pod for pod in (await self.cluster.list(POD, namespace, selector)).items if not is_deleting(pod)]

    async def names(self, selector: str = "") -> set[str]:
        return {name_of(pod) for pod in await self.pods(selector=selector)}

    async def of(self, key: Key) -> set[str]:
        """Return the active Pods of a revision."""
        return {name_of(pod) for pod in await self.pods(key.namespace, f"{LABEL_REVISION}={key.name}")}

    async def owned(self, key: Key) -> set[str]:
        """Return the Pods that its ReplicaSet owns."""
        uid = (await self.replica_set(key))["metadata"]["uid"]
        pods = await self.pods(key.namespace)
        return {name_of(pod) for pod in pods if (controller_of(pod) or {}).get("uid") == uid}

    async def claimed(self) -> set[str]:
        return {name_of(pod) for pod in await self.pods() if is_claimed(pod)}

    async def halves(self) -> set[str]:
        """Return the members between free and adopted."""
        pods = await self.pods()
        return {name_of(pod) for pod in pods if is_claimed(pod) and LABEL_POOL in labels_of(pod)}

    def uses(self) -> Counter[str]:
        """Return how often each member received a model."""
        return Counter(self.caller.pods)


@contextlib.asynccontextmanager
async def playing(path: Path, validators: Mapping[Kind, Validator] | None = None) -> AsyncIterator[World]:
    """Run a world with its workload controllers."""
    async with embedded_cluster(path, validators=validators) as cluster:
        informers = Informers(cluster)
        workloads = Workloads(cluster, informers, SystemClock())
        async with at_work(informers.run(), workloads.run()):
            yield World(cluster)

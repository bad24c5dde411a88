"""The steps of one claim. Each is a single write or call, so that a crash leaves one of few states behind (`marks`).

The writes are JSON patches with `test` operations for their preconditions. Of two processes that claim the same member,
one succeeds, and a member whose claim was undone meanwhile is not restored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from autoscaler.warmpool.claims.assignment import MemberAssignment
from autoscaler.warmpool.claims.caller import LoadCaller, LoadCallFailed
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL
from autoscaler.warmpool.claims.pods import ClaimRecord
from autoscaler.warmpool.members import Members
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Conflict, NotFound
from clusters.base.objects import POD, Key, Object, annotations_of, is_deleting, key_of, labels_of, uid_of, version_of
from clusters.net.endpoints import endpoint_of

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-autoscaler"

Operation = dict[str, Any]
Step = Literal["reserve", "assign", "label", "adopt"]


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """One completed step of a claim of revision `key`; `started` and `seconds` are by the monotonic clock."""

    key: Key
    pod: str
    step: Step
    started: float
    seconds: float
    ok: bool


class ClaimSteps:
    """The steps, over one cluster. Each raises the errors of the cluster or the member, and is passed to `record`."""

    def __init__(
        self,
        cluster: Cluster,
        members: Members,
        *,
        caller: LoadCaller,
        keys: PoolKey,
        clock: Clock,
        record: Callable[[ClaimStep], None],
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._caller = caller
        self._keys = keys
        self._clock = clock
        self._record = record

    async def reserve(self, key: Key, pod: Object, mark: ClaimRecord) -> Object:
        """Write the claim on the member and return the Pod, which no other claim can use from then on.

        Raises NotFound, Conflict or Invalid (depending on the cluster) when it is no longer free.
        """
        with self._timed(key, pod, "reserve"):
            after = await self._patch(pod, reserve_patch(pod, mark))
            if is_deleting(after):
                raise Conflict(f"Pod {key_of(pod)} is being deleted")
            return after

    async def assign(self, key: Key, pod: Object, assignment: MemberAssignment) -> None:
        """Send the assignment to the member, which stores it before it answers. Raises LoadCallFailed."""
        with self._timed(key, pod, "assign"):
            endpoint = endpoint_of(pod)
            if endpoint is None:
                raise LoadCallFailed(f"{key_of(pod)} has no address")
            await self._caller.load(endpoint, self._keys.token_for(key_of(pod)), assignment)

    async def label(self, key: Key, pod: Object, template: Object) -> Object:
        """Add the labels and annotations of the Deployment's template; return the Pod, which may now receive
        requests.
        """
        with self._timed(key, pod, "label"):
            return await self._patch(pod, label_patch(pod, template))

    async def adopt(self, key: Key, pod: Object, replica_set: Object) -> Object:
        """Remove the Pod from its pool and add the ReplicaSet's labels, so that it is adopted; return the Pod."""
        with self._timed(key, pod, "adopt"):
            return await self._patch(pod, adopt_patch(pod, replica_set))

    async def delete(self, pod: Object, why: str, *, as_seen: bool = False) -> bool:
        """Delete the Pod; with `as_seen`, only if it has not changed since. Return False if this must be retried."""
        log.info("deleting warm Pod %s: %s", key_of(pod), why)
        try:
            version = version_of(pod) if as_seen else ""
            key = key_of(pod)
            await self._cluster.delete(POD, key.name, key.namespace, uid=uid_of(pod), resource_version=version)
        except NotFound:
            return True
        except Conflict as error:
            log.info("warm Pod %s has changed meanwhile: %s", key_of(pod), error)
            return False
        except ClusterError as error:
            log.warning("cannot delete warm Pod %s (%s): retrying", key_of(pod), error)
            return False
        return True

    async def _patch(self, pod: Object, operations: Sequence[Operation]) -> Object:
        after = await self._cluster.patch(
            POD, key_of(pod).name, operations, key_of(pod).namespace, manager=MANAGER, type="json"
        )
        self._members.record_write(after)
        return after

    @contextmanager
    def _timed(self, key: Key, pod: Object, step: Step) -> Iterator[None]:
        started, ok = self._clock.monotonic(), False
        try:
            yield
            ok = True
        finally:
            self._record(ClaimStep(key, key_of(pod).name, step, started, self._clock.monotonic() - started, ok))


def reserve_patch(pod: Object, mark: ClaimRecord) -> list[Operation]:
    """Return a patch that claims the Pod if it is the observed one and free; its status may have changed since."""
    return [
        _test(("uid",), uid_of(pod)),
        _test(("annotations", ANNOTATION_CLAIM), ""),
        _add(("annotations", ANNOTATION_CLAIM), mark.to_json()),
    ]


def label_patch(pod: Object, template: Object) -> list[Operation]:
    """Return a patch that adds the template's labels, without a hash, so that no ReplicaSet adopts the Pod yet."""
    metadata = template.get("metadata") or {}
    return [
        _test_claim(pod),
        *_additions("labels", metadata.get("labels") or {}),
        *_additions("annotations", metadata.get("annotations") or {}),
    ]


def adopt_patch(pod: Object, replica_set: Object) -> list[Operation]:
    """Return a patch that removes the Pod from the pool, including the owner reference, and adds the ReplicaSet's
    labels.
    """
    labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return [
        _test_claim(pod),
        _test(("labels", LABEL_POOL), labels_of(pod)[LABEL_POOL]),
        {"op": "remove", "path": _path(("labels", LABEL_POOL))},
        *_additions("labels", labels),
        _add(("ownerReferences",), []),
    ]


def _test_claim(pod: Object) -> Operation:
    return _test(("annotations", ANNOTATION_CLAIM), annotations_of(pod)[ANNOTATION_CLAIM])


def _additions(field: str, values: Mapping[str, str]) -> list[Operation]:
    return [_add((field, key), value) for key, value in sorted(values.items())]


def _add(path: Sequence[str], value: Any) -> Operation:
    return {"op": "add", "path": _path(path), "value": value}


def _test(path: Sequence[str], value: str) -> Operation:
    return {"op": "test", "path": _path(path), "value": value}


def _path(fields: Sequence[str]) -> str:
    """Return a JSON pointer (RFC 6901) below `metadata`."""
    return "/metadata/" + "/".join(field.replace("~", "~0").replace("/", "~1") for field in fields)

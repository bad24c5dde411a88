"""The steps of one claim: each a single write or call, so that a crash leaves one of few states behind (`marks`).

The writes are JSON patches whose `test`s name what the step relies on: of two processes at the same member one gets
through, and a member that somebody undid meanwhile is not brought back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from autoscaler.warmpool.claims.assignment import Assignment
from autoscaler.warmpool.claims.caller import LoadCaller, LoadFailed
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL
from autoscaler.warmpool.claims.pods import Mark
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
    """One step of one claim of revision `key`, for the record; `started` and `seconds` by the monotonic clock."""

    key: Key
    pod: str
    step: Step
    started: float
    seconds: float
    ok: bool


class Steps:
    """The steps, over one cluster; each raises what the cluster or the member answers, and is told to `tell`."""

    def __init__(
        self,
        cluster: Cluster,
        members: Members,
        *,
        caller: LoadCaller,
        keys: PoolKey,
        clock: Clock,
        tell: Callable[[ClaimStep], None],
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._caller = caller
        self._keys = keys
        self._clock = clock
        self._tell = tell

    async def reserve(self, key: Key, pod: Object, mark: Mark) -> Object:
        """Write the claim on the member; returns the Pod. It is nobody else's from then on.

        Raises Conflict or Invalid (one cluster says this, another that) or NotFound when it is no longer free.
        """
        with self._timed(key, pod, "reserve"):
            after = await self._patch(pod, reserve_patch(pod, mark))
            if is_deleting(after):
                raise Conflict(f"Pod {key_of(pod)} is being deleted")
            return after

    async def assign(self, key: Key, pod: Object, assignment: Assignment) -> None:
        """Tell the member what to load; it has written that down when it answers. Raises LoadFailed."""
        with self._timed(key, pod, "assign"):
            endpoint = endpoint_of(pod)
            if endpoint is None:
                raise LoadFailed(f"{key_of(pod)} has no address")
            await self._caller.load(endpoint, self._keys.token_for(key_of(pod)), assignment)

    async def label(self, key: Key, pod: Object, template: Object) -> Object:
        """Give it the labels and annotations of the Deployment's template; returns the Pod. Requests may come now."""
        with self._timed(key, pod, "label"):
            return await self._patch(pod, label_patch(pod, template))

    async def adopt(self, key: Key, pod: Object, replica_set: Object) -> Object:
        """Take it out of its pool, with the labels of the ReplicaSet, which adopts it; returns the Pod."""
        with self._timed(key, pod, "adopt"):
            return await self._patch(pod, adopt_patch(pod, replica_set))

    async def delete(self, pod: Object, why: str, *, as_seen: bool = False) -> bool:
        """Ask for its end; `as_seen`: only if nothing was written on it since. False when it must be tried again."""
        log.info("deleting warm Pod %s: %s", key_of(pod), why)
        try:
            version = version_of(pod) if as_seen else ""
            await self._cluster.delete(POD, *_address(pod), uid=uid_of(pod), resource_version=version)
        except NotFound:
            return True
        except Conflict as error:
            log.info("warm Pod %s is not what it was: %s", key_of(pod), error)
            return False
        except ClusterError as error:
            log.warning("cannot delete warm Pod %s (%s): it is tried again", key_of(pod), error)
            return False
        return True

    async def _patch(self, pod: Object, operations: Sequence[Operation]) -> Object:
        after = await self._cluster.patch(
            POD, key_of(pod).name, operations, key_of(pod).namespace, manager=MANAGER, type="json"
        )
        self._members.wrote(after)
        return after

    @contextmanager
    def _timed(self, key: Key, pod: Object, step: Step) -> Iterator[None]:
        started, ok = self._clock.monotonic(), False
        try:
            yield
            ok = True
        finally:
            self._tell(ClaimStep(key, key_of(pod).name, step, started, self._clock.monotonic() - started, ok))


def reserve_patch(pod: Object, mark: Mark) -> list[Operation]:
    """Claims the Pod if it is the one that was seen and nobody's; its status may have been written since."""
    return [
        _test(("uid",), uid_of(pod)),
        _test(("annotations", ANNOTATION_CLAIM), ""),
        _add(("annotations", ANNOTATION_CLAIM), mark.to_json()),
    ]


def label_patch(pod: Object, template: Object) -> list[Operation]:
    """Adds what the template carries, without a hash: no ReplicaSet looks at the Pod yet."""
    metadata = template.get("metadata") or {}
    return [
        _test_claim(pod),
        *_additions("labels", metadata.get("labels") or {}),
        *_additions("annotations", metadata.get("annotations") or {}),
    ]


def adopt_patch(pod: Object, replica_set: Object) -> list[Operation]:
    """Out of the pool, whose end is not its own any more, with all labels that the ReplicaSet's own Pods have."""
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
    """A JSON pointer (RFC 6901) below `metadata`."""
    return "/metadata/" + "/".join(field.replace("~", "~0").replace("/", "~1") for field in fields)


def _address(pod: Object) -> tuple[str, str]:
    return key_of(pod).name, key_of(pod).namespace

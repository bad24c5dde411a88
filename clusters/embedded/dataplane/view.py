"""What the cluster's objects mean for the data plane: hosts and their splits, endpoints, what the activator is told.

Kept up incrementally: a change of one object makes only what hangs on it anew, whatever the number of models.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from clusters.base.errors import KnodelError
from clusters.base.objects import (
    INGRESS,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Object,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    uid_of,
)
from clusters.embedded.activator.link import Target
from clusters.embedded.kubelet.pod_status import CRASH_LOOP
from clusters.gateway.ingress import revisions_of, virtual_hosts, without_collisions
from clusters.gateway.routes import Backend, Table, VirtualHost
from clusters.gateway.token import GatewayTokens
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

BY_REVISION: Final = "revision"
SERVE: Final = "Serve"  # ServerlessService.spec.mode; "Proxy" is the other

GATEWAY_SLACK: Final = 5.0  # s that the gateway waits beyond activator and server, whose errors say more than its own
DEFAULT_TIMEOUT: Final = 300.0  # s; Knative's default revision-timeout-seconds, for a revision without PodAutoscaler


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """How a revision's requests are held.

    `limit`: requests that may wait at the activator. `slots`: requests that one replica takes at once, 0 for any
    number. `timeout`: seconds that a request may wait, and as many again that its answer may take.
    """

    limit: int
    slots: int
    timeout: float


Hold = Callable[[Object], HoldPolicy]
"""The policy of a revision, from its PodAutoscaler."""

Stamp = tuple[str, int]
"""uid and generation: which object, in which of its wordings."""

UNRESOLVED: Final = -1  # generation of a wording that names a revision that is not there yet: in force, but not Ready


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table, and which objects' wordings it has taken in.

    `refused`: host name → the Ingress that did not get it, because another one has it. `faults`: Ingress → why its
    present wording cannot be taken in; a former one goes on.
    """

    table: Table = field(default_factory=Table)
    ingresses: Mapping[Key, Stamp] = field(default_factory=dict)
    services: Mapping[Key, Stamp] = field(default_factory=dict)
    refused: Mapping[str, Key] = field(default_factory=dict)
    faults: Mapping[Key, str] = field(default_factory=dict)

    def is_direct(self, revision: Key) -> bool:
        """Whether requests to the revision go past the activator."""
        return revision in self.table.backends


@dataclass(frozen=True, slots=True)
class _Hosts:
    """`stamp` is of the Ingress's wording that `hosts` were made from; `created` and the key decide who has a host."""

    stamp: Stamp
    created: str
    hosts: tuple[VirtualHost, ...]


class View:
    """Reads the informers; whoever owns it says which objects changed."""

    def __init__(self, informers: Informers, activator: Backend, hold: Hold, tokens: GatewayTokens) -> None:
        self._tokens = tokens
        self._ingresses = informers[INGRESS]
        self._services = informers[SERVERLESS_SERVICE]
        self._autoscalers = informers[POD_AUTOSCALER]
        self._pods = informers[POD]
        self._activator = activator
        self._hold = hold
        self._released: set[str] = set()
        self._hosts: dict[Key, _Hosts] = {}
        self._backends: dict[Key, tuple[Backend, ...]] = {}
        self._parked: dict[Key, frozenset[Backend]] = {}
        self._stamps: dict[Key, Stamp] = {}
        self._faults: dict[Key, str] = {}
        self._merged: tuple[tuple[VirtualHost, ...], Mapping[str, Key]] = ((), {})
        self._ingresses.add_index(BY_REVISION, lambda ingress: [str(key) for key in revisions_of(ingress)])
        self._pods.add_index(BY_REVISION, _revision_index)

    def release(self, pod: Object) -> None:
        """Leave this very Pod out from now on, whatever it says of itself."""
        self._released.add(uid_of(pod))

    def forget(self, pod: Object) -> None:
        """The Pod is gone."""
        self._released.discard(uid_of(pod))

    def endpoints(self, revision: Key) -> tuple[Endpoint, ...]:
        """Where the revision's ready Pods answer, by name."""
        pods = self._pods.indexed(BY_REVISION, str(revision))
        ready = (pod for pod in pods if is_ready(pod) and uid_of(pod) not in self._released)
        found = map(self._endpoint, ready)
        return tuple(sorted((one for one in found if one is not None), key=lambda one: one.pod))

    def address(self, pod: Object) -> Backend | None:
        """Where the Pod takes requests, None while it has no address."""
        endpoint = self._endpoint(pod)
        return None if endpoint is None else _backend(endpoint)

    def _endpoint(self, pod: Object) -> Endpoint | None:
        endpoint = endpoint_of(pod)
        return None if endpoint is None else replace(endpoint, token=self._tokens.of(uid_of(pod)))

    def target(self, revision: Key) -> Target | None:
        """What the activator is to know of the revision; None without ServerlessService and PodAutoscaler.

        Raises what `hold` raises for a PodAutoscaler that it cannot read.
        """
        policy = self._policy(revision)
        if policy is None or self._services.get(revision.name, revision.namespace) is None:
            return None
        return Target(
            key=revision,
            endpoints=self.endpoints(revision),
            hold_limit=policy.limit,
            slots_per_endpoint=policy.slots,
            timeout=policy.timeout,
            broken=self._is_broken(revision),
        )

    def _is_broken(self, revision: Key) -> bool:
        """Whether there are Pods for the revision, and none of them can start."""
        pods = [pod for pod in self._pods.indexed(BY_REVISION, str(revision)) if not is_deleting(pod)]
        return bool(pods) and all(map(cannot_start, pods))

    def ingresses_of(self, revision: Key) -> list[Key]:
        """The Ingresses that name the revision."""
        return [key_of(ingress) for ingress in self._ingresses.indexed(BY_REVISION, str(revision))]

    def revisions(self) -> list[Key]:
        """Every revision with a ServerlessService."""
        return [key_of(service) for service in self._services]

    def refresh(self, ingresses: Iterable[Key], revisions: Iterable[Key]) -> Snapshot:
        """Take in what changed since the last call; the whole as it is to be now."""
        for revision in revisions:
            self._refresh_backends(revision)
        changed = [self._refresh_hosts(key) for key in ingresses]
        if any(changed):
            self._merged = self._merge()
        hosts, refused = self._merged
        return Snapshot(
            table=Table(hosts, dict(self._backends), self._activator, self._all_parked()),
            ingresses={key: hosts.stamp for key, hosts in self._hosts.items()},
            services=dict(self._stamps),
            refused=refused,
            faults=dict(self._faults),
        )

    def _all_parked(self) -> frozenset[Backend]:
        return frozenset(backend for backends in self._parked.values() for backend in backends)

    def _refresh_backends(self, revision: Key) -> None:
        service = self._services.get(revision.name, revision.namespace)
        self._backends.pop(revision, None)
        self._refresh_parked(revision)
        if service is None:
            self._stamps.pop(revision, None)
            return
        self._stamps[revision] = stamp_of(service)
        endpoints = self.endpoints(revision)
        if endpoints and (service.get("spec") or {}).get("mode") == SERVE:
            self._backends[revision] = tuple(map(_backend, endpoints))

    def _refresh_parked(self, revision: Key) -> None:
        """Every Pod with an address; those that serve are taken out of this by the configuration's maker."""
        pods = self._pods.indexed(BY_REVISION, str(revision))
        found = frozenset(one for one in map(self.address, pods) if one is not None)
        if found:
            self._parked[revision] = found
        else:
            self._parked.pop(revision, None)

    def _refresh_hosts(self, key: Key) -> bool:
        """Whether the virtual hosts of the Ingress are others now."""
        former = self._hosts.get(key)
        ingress = self._ingresses.get(key.name, key.namespace)
        self._faults.pop(key, None)
        if ingress is None:
            return self._hosts.pop(key, None) is not None
        uid, generation = stamp_of(ingress)
        if not self._is_resolved(ingress):
            if former is not None and former.stamp[0] == uid:
                return False  # what it was goes on until all that it names now is there
            generation = UNRESOLVED
        hosts = self._read(key, ingress)
        if hosts is None:
            return False
        same = former is not None and former.hosts == hosts
        created = str(ingress["metadata"].get("creationTimestamp", ""))
        self._hosts[key] = _Hosts((uid, generation), created, former.hosts if same and former is not None else hosts)
        return not same

    def _read(self, key: Key, ingress: Object) -> tuple[VirtualHost, ...] | None:
        """None for an Ingress that cannot be understood: it must not stop the others."""
        try:
            return virtual_hosts(ingress, self._timeout)
        except (KnodelError, KeyError, TypeError, ValueError) as error:
            self._faults[key] = f"{type(error).__name__}: {error}"
            log.warning("ingress %s cannot be taken in: %s", key, self._faults[key])
            return None

    def _is_resolved(self, ingress: Object) -> bool:
        return all(self._services.get(one.name, one.namespace) is not None for one in revisions_of(ingress))

    def _merge(self) -> tuple[tuple[VirtualHost, ...], Mapping[str, Key]]:
        """All virtual hosts; of two Ingresses with one host the elder has it."""
        elder_first = sorted(self._hosts, key=lambda key: (self._hosts[key].created, key))
        owners = {host.name: key for key in elder_first for host in self._hosts[key].hosts}
        hosts, refused = without_collisions(host for key in elder_first for host in self._hosts[key].hosts)
        return hosts, {name: owners[loser] for name, loser in refused.items()}

    def _policy(self, revision: Key) -> HoldPolicy | None:
        autoscaler = self._autoscalers.get(revision.name, revision.namespace)
        return None if autoscaler is None else self._hold(autoscaler)

    def _timeout(self, revision: Key) -> float:
        """A request may be held for its whole timeout and then served for as long."""
        policy = self._policy(revision)
        return 2 * (policy.timeout if policy is not None else DEFAULT_TIMEOUT) + GATEWAY_SLACK


def _backend(endpoint: Endpoint) -> Backend:
    return Backend(endpoint.host, endpoint.port, endpoint.token)


def revision_of(pod: Object) -> Key | None:
    """The revision that a Pod serves, by its label."""
    name = labels_of(pod).get(LABEL_REVISION)
    return Key(namespace_of(pod), name) if name else None


def cannot_start(pod: Object) -> bool:
    """Whether the Pod's process failed again and again, by its own account.

    One that was killed says nothing of itself: its next start is worth waiting for.
    """
    container: Object = next(iter((pod.get("status") or {}).get("containerStatuses") or ()), {})
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return waiting.get("reason") == CRASH_LOOP and bool(ended.get("exitCode")) and bool(ended.get("message"))


def _revision_index(pod: Object) -> Iterable[str]:
    revision = revision_of(pod)
    return () if revision is None else (str(revision),)


def stamp_of(obj: Object) -> Stamp:
    """Which wording of which object this is."""
    return uid_of(obj), generation_of(obj)

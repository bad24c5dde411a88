"""Compute the routing state from the cluster's objects: virtual hosts and splits, backends, and activator targets.

The computation is incremental: a change of one object recomputes only what depends on it, at any number of models.
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
    MODEL,
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
from clusters.embedded.activator.wire import ActivatorTarget
from clusters.embedded.kubelet.pod_status import CRASH_LOOP
from clusters.gateway.ingress import revisions_of, virtual_hosts, without_collisions
from clusters.gateway.routes import Backend, Table, VirtualHost
from clusters.gateway.token import GatewayTokens
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from clusters.net.language_models import LanguageModel, language_model
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

BY_REVISION: Final = "revision"
SERVE: Final = "Serve"  # ServerlessService.spec.mode; "Proxy" is the other

GATEWAY_MARGIN: Final = 5.0  # s added to the gateway's timeout, because errors of activator and server have more detail
DEFAULT_TIMEOUT: Final = 300.0  # s; Knative's default revision-timeout-seconds, for a revision without PodAutoscaler


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """How the requests of a revision are held.

    `limit`: maximum number of requests queued at the activator. `slots`: maximum number of concurrent requests of one
    replica, 0 for no limit. `timeout`: maximum time in the queue, and maximum time of the response after it, in seconds
    each.
    """

    limit: int
    slots: int
    timeout: float


ReadHoldPolicy = Callable[[Object], HoldPolicy]
"""Returns the hold policy of a revision, from its PodAutoscaler."""

SpecVersion = tuple[str, int]
"""The uid and the generation of an object: they identify one version of its spec."""

UNRESOLVED: Final = -1  # generation of a spec that refers to an absent revision: it is programmed, but not Ready


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A routing table, and the objects that it includes.

    `ingresses` and `services`: the versions of the specs that it includes. `refused`: host name → the Ingress that did
    not get it, because another Ingress has it. `faults`: Ingress → why its present spec is invalid; its former spec
    remains in the table.
    """

    table: Table = field(default_factory=Table)
    ingresses: Mapping[Key, SpecVersion] = field(default_factory=dict)
    services: Mapping[Key, SpecVersion] = field(default_factory=dict)
    refused: Mapping[str, Key] = field(default_factory=dict)
    faults: Mapping[Key, str] = field(default_factory=dict)

    def is_direct(self, revision: Key) -> bool:
        """Return whether requests to the revision bypass the activator."""
        return revision in self.table.backends


@dataclass(frozen=True, slots=True)
class _Hosts:
    """The virtual hosts of one version of an Ingress.

    `created` and the key decide which Ingress gets a disputed host.
    """

    version: SpecVersion
    created: str
    hosts: tuple[VirtualHost, ...]


class RoutingState:
    """The routing state of all objects. The owner calls `refresh` with the objects that changed."""

    def __init__(
        self, informers: Informers, activator: Backend, read_hold_policy: ReadHoldPolicy, tokens: GatewayTokens
    ) -> None:
        self._tokens = tokens
        self._ingresses = informers[INGRESS]
        self._services = informers[SERVERLESS_SERVICE]
        self._autoscalers = informers[POD_AUTOSCALER]
        self._pods = informers[POD]
        self._models = informers[MODEL]
        self._activator = activator
        self._read_hold_policy = read_hold_policy
        self._released: set[str] = set()
        self._hosts: dict[Key, _Hosts] = {}
        self._backends: dict[Key, tuple[Backend, ...]] = {}
        self._parked: dict[Key, frozenset[Backend]] = {}
        self._service_versions: dict[Key, SpecVersion] = {}
        self._faults: dict[Key, str] = {}
        self._language_models: dict[Key, LanguageModel] = {}
        self._merged: tuple[tuple[VirtualHost, ...], Mapping[str, Key]] = ((), {})
        self._ingresses.add_index(BY_REVISION, lambda ingress: [str(key) for key in revisions_of(ingress)])
        self._pods.add_index(BY_REVISION, lambda pod: map(str, filter(None, [revision_of(pod)])))

    def release(self, pod: Object) -> None:
        """Exclude this Pod from now on, even while its status is Ready."""
        self._released.add(uid_of(pod))

    def forget(self, pod: Object) -> None:
        """Delete the record of `release`, because the Pod was deleted."""
        self._released.discard(uid_of(pod))

    def endpoints(self, revision: Key) -> tuple[Endpoint, ...]:
        """Return the endpoints of the revision's ready Pods, sorted by the Pods' names."""
        pods = self._pods.indexed(BY_REVISION, str(revision))
        ready = (pod for pod in pods if is_ready(pod) and uid_of(pod) not in self._released)
        found = (endpoint for endpoint in map(self._endpoint, ready) if endpoint is not None)
        return tuple(sorted(found, key=lambda endpoint: endpoint.pod))

    def address(self, pod: Object) -> Backend | None:
        """Return the address of the Pod for requests, or None while it has none."""
        endpoint = self._endpoint(pod)
        return None if endpoint is None else _backend(endpoint)

    def _endpoint(self, pod: Object) -> Endpoint | None:
        endpoint = endpoint_of(pod)
        return None if endpoint is None else replace(endpoint, token=self._tokens.of(uid_of(pod)))

    def target(self, revision: Key) -> ActivatorTarget | None:
        """Return the revision's target for the activator, or None without a ServerlessService or a PodAutoscaler.

        Raises the errors of `read_hold_policy` for an invalid PodAutoscaler.
        """
        policy = self._policy(revision)
        if policy is None or self._services.get(revision.name, revision.namespace) is None:
            return None
        pods = [pod for pod in self._pods.indexed(BY_REVISION, str(revision)) if not is_deleting(pod)]
        return ActivatorTarget(
            key=revision,
            endpoints=self.endpoints(revision),
            hold_limit=policy.limit,
            slots_per_endpoint=policy.slots,
            timeout=policy.timeout,
            broken=bool(pods) and all(map(cannot_start, pods)),
        )

    def ingresses_of(self, revision: Key) -> list[Key]:
        """Return the Ingresses that refer to the revision."""
        return [key_of(ingress) for ingress in self._ingresses.indexed(BY_REVISION, str(revision))]

    def revisions(self) -> list[Key]:
        """Return every revision with a ServerlessService."""
        return [key_of(service) for service in self._services]

    def refresh(self, ingresses: Iterable[Key], revisions: Iterable[Key], models: Iterable[Key] = ()) -> Snapshot:
        """Apply the changes of these objects, and return the new snapshot of all objects."""
        for key in models:
            self._refresh_model(key)
        for revision in revisions:
            self._refresh_backends(revision)
        changed = [self._refresh_hosts(key) for key in ingresses]
        if any(changed):
            self._merged = self._merge()
        hosts, refused = self._merged
        return Snapshot(
            table=Table(
                hosts,
                dict(self._backends),
                self._activator,
                frozenset[Backend]().union(*self._parked.values()),
                tuple(sorted(self._language_models.values())),
            ),
            ingresses={key: hosts.version for key, hosts in self._hosts.items()},
            services=dict(self._service_versions),
            refused=refused,
            faults=dict(self._faults),
        )

    def _refresh_model(self, key: Key) -> None:
        model = self._models.get(key.name, key.namespace)
        listed = None if model is None else language_model(model)
        self._language_models.pop(key, None)
        if listed is not None:
            self._language_models[key] = listed

    def _refresh_backends(self, revision: Key) -> None:
        service = self._services.get(revision.name, revision.namespace)
        self._backends.pop(revision, None)
        pods = self._pods.indexed(BY_REVISION, str(revision))
        addresses = frozenset(address for address in map(self.address, pods) if address is not None)
        self._parked.pop(revision, None)
        if addresses:
            self._parked[revision] = addresses  # `clusters.gateway.config` excludes those that serve
        if service is None:
            self._service_versions.pop(revision, None)
            return
        self._service_versions[revision] = spec_version_of(service)
        endpoints = self.endpoints(revision)
        if endpoints and (service.get("spec") or {}).get("mode") == SERVE:
            self._backends[revision] = tuple(map(_backend, endpoints))

    def _refresh_hosts(self, key: Key) -> bool:
        """Return whether the virtual hosts of the Ingress changed."""
        former = self._hosts.get(key)
        ingress = self._ingresses.get(key.name, key.namespace)
        self._faults.pop(key, None)
        if ingress is None:
            return self._hosts.pop(key, None) is not None
        uid, generation = spec_version_of(ingress)
        if any(self._services.get(one.name, one.namespace) is None for one in revisions_of(ingress)):
            if former is not None and former.version[0] == uid:
                return False  # the former spec remains until all revisions of the new one exist
            generation = UNRESOLVED
        hosts = self._read(key, ingress)
        if hosts is None:
            return False
        created = str(ingress["metadata"].get("creationTimestamp", ""))
        if former is not None and former.hosts == hosts:
            self._hosts[key] = _Hosts((uid, generation), created, former.hosts)
            return False
        self._hosts[key] = _Hosts((uid, generation), created, hosts)
        return True

    def _read(self, key: Key, ingress: Object) -> tuple[VirtualHost, ...] | None:
        """Return None for an invalid Ingress, which must not affect the others."""
        try:
            return virtual_hosts(ingress, self._timeout)
        except (KnodelError, KeyError, TypeError, ValueError) as error:
            self._faults[key] = f"{type(error).__name__}: {error}"
            log.warning("invalid ingress %s: %s", key, self._faults[key])
            return None

    def _merge(self) -> tuple[tuple[VirtualHost, ...], Mapping[str, Key]]:
        """Return all virtual hosts, and the hosts that an Ingress did not get because an older Ingress has them."""
        oldest_first = sorted(self._hosts, key=lambda key: (self._hosts[key].created, key))
        owners = {host.name: key for key in oldest_first for host in self._hosts[key].hosts}
        hosts, refused = without_collisions(host for key in oldest_first for host in self._hosts[key].hosts)
        return hosts, {name: owners[owner] for name, owner in refused.items()}

    def _policy(self, revision: Key) -> HoldPolicy | None:
        autoscaler = self._autoscalers.get(revision.name, revision.namespace)
        return None if autoscaler is None else self._read_hold_policy(autoscaler)

    def _timeout(self, revision: Key) -> float:
        """Return the gateway's timeout: a request may be held for its whole timeout, and then served for as long."""
        policy = self._policy(revision)
        return 2 * (policy.timeout if policy is not None else DEFAULT_TIMEOUT) + GATEWAY_MARGIN


def _backend(endpoint: Endpoint) -> Backend:
    return Backend(endpoint.host, endpoint.port, endpoint.token)


def revision_of(pod: Object) -> Key | None:
    """Return the revision in the labels of a Pod."""
    name = labels_of(pod).get(LABEL_REVISION)
    return Key(namespace_of(pod), name) if name else None


def cannot_start(pod: Object) -> bool:
    """Return whether the Pod's process failed repeatedly, and reported an error each time.

    A process that was killed reports none. Its next start may succeed.
    """
    container: Object = next(iter((pod.get("status") or {}).get("containerStatuses") or ()), {})
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return waiting.get("reason") == CRASH_LOOP and bool(ended.get("exitCode")) and bool(ended.get("message"))


def spec_version_of(obj: Object) -> SpecVersion:
    """Return the version of the object's spec."""
    return uid_of(obj), generation_of(obj)

"""Measure the load of Models at their replicas: requests, errors, latency and queues between two readings.

The model server has totals of its process on two pages of its management port, `/stats` and `/stats/answers`. On one
machine that port is reached directly, on Kubernetes through the API server (`pods/proxy`), so no replica has to be
reachable from the caller.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.metrics.response_latency import LatencyTotals, parse_latency_totals, quantile_of
from autoscaler.metrics.stat import Sample, parse_stats
from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import MODEL, POD, POD_AUTOSCALER, Key, Object, key_of, labels_of, name_of, namespace_of
from clusters.net.endpoints import MANAGEMENT_PORT, endpoint_of, is_ready
from serving.client.api import ApiCalls
from serving.client.effects import Call, HttpRequest, Item, Items, Spawn, each, exchange, now, receive
from serving.client.errors import Unreachable
from serving.client.http import ServerAddress
from serving.client.models.waiting import Outage
from serving.client.responses import raise_failure
from serving.types.annotations import LABEL_MODEL

READERS: Final = 8
"""Replicas that are read at the same time."""
PAGE_TIMEOUT: Final = 2.0
"""s for one page, which a server answers in a millisecond; a replica that hangs delays a reading by two pages."""
LEAST_OUTAGE: Final = 30.0
"""s for which a server may be unreachable between two readings."""
_QUEUED: Final = re.compile(rb'knodel_revision_queued_requests\{namespace="([^"]*)",revision="([^"]*)"\} (\S+)')
"""A line of the platform's page for Prometheus."""


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """The two pages of one replica."""

    model: Key
    stats: Sample
    answers: LatencyTotals


@dataclass(frozen=True, slots=True)
class Reading:
    """All Models at one moment (`at`: monotonic seconds), with the pages of their ready replicas by Pod.

    `queued` counts requests that wait for a first replica, by Model. `refused` is why replicas cannot be read, "" if
    they can. `unread` are the Models of ready replicas that gave no pages.
    """

    at: float
    models: Sequence[Object]
    replicas: Mapping[Key, ReplicaReading]
    queued: Mapping[Key, float]
    refused: str = ""
    unread: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one Model between two readings; None for numbers that are not known.

    Rates are per second, latencies in seconds. `errors` is the share of failed requests. `busy` and `queued` are those
    of the later reading.
    """

    rate: float | None = None
    errors: float | None = None
    p50: float | None = None
    p99: float | None = None
    tokens: float | None = None
    busy: float = 0.0
    queued: float = 0.0


def loads(before: Reading | None, after: Reading) -> dict[Key, Load]:
    """Return the load of each Model. Pure.

    A process that the former reading does not have adds nothing, since its requests may be old.
    """
    return {key_of(model): _load(key_of(model), before, after) for model in after.models}


def readings(api: ApiCalls, namespace: str | None, *, is_cluster: bool) -> Items[Reading]:
    """Yield a reading of a namespace (None: of all) whenever the caller takes one, without end.

    The operation continues after an outage of up to LEAST_OUTAGE. Raises Unreachable, and the errors of a list.
    """
    outage = Outage(max(api.server.restart_window, LEAST_OUTAGE))
    while True:
        try:
            found = yield from _read(api, namespace, is_cluster)
        except Unreachable as error:
            yield from outage.pause(error, float("inf"))
            continue
        outage.reset()
        yield Item(found)


def _load(key: Key, before: Reading | None, after: Reading) -> Load:
    present = [(pod, one) for pod, one in after.replicas.items() if one.model == key]
    queued = after.queued.get(key, 0.0) + sum(one.stats.queued for _, one in present)
    busy = sum(one.stats.active for _, one in present)
    seconds = 0.0 if before is None else after.at - before.at
    if before is None or seconds <= 0 or (not present and (after.refused or key in after.unread)):
        return Load(busy=busy, queued=queued)
    requests, errors, tokens, latency = 0, 0, 0.0, Counter[int]()
    counts_tokens = False
    for pod, one in present:
        former = before.replicas.get(pod)
        if former is None or former.answers.process != one.answers.process:
            continue
        requests += one.answers.requests - former.answers.requests
        errors += one.answers.errors - former.answers.errors
        latency.update({bucket: n - former.answers.latency.get(bucket, 0) for bucket, n in one.answers.latency.items()})
        if one.stats.tokens is not None and former.stats.tokens is not None:
            counts_tokens = True
            tokens += sum(one.stats.tokens) - sum(former.stats.tokens)
    timed = +latency
    p50, p99 = (quantile_of(timed, share) if timed else None for share in (0.5, 0.99))
    return Load(
        requests / seconds, errors / requests if requests else None, p50, p99,
        tokens / seconds if counts_tokens else None, busy, queued,
    )  # fmt: skip


def _read(api: ApiCalls, namespace: str | None, is_cluster: bool) -> Call[Reading]:
    models = (yield from api.list(MODEL, namespace))["items"]
    pods = [pod for pod in (yield from api.list(POD, namespace, LABEL_MODEL))["items"] if is_ready(pod)]
    queued = {} if is_cluster else (yield from _queued(api, namespace))
    at = yield from now()
    shares = [pods[start::READERS] for start in range(min(READERS, len(pods)))]
    for number, share in enumerate(shares):
        yield Spawn(f"replicas-{number}", _read_replicas(api, share, is_cluster))
    replicas, unread, refused, ended = dict[Key, ReplicaReading](), set[Key](), "", 0
    while ended < len(shares):
        message = yield from receive()
        if message is None:
            continue
        if message.ended:
            ended += 1
            if isinstance(message.error, Forbidden):
                refused = str(message.error)
            elif message.error is not None:
                raise message.error
        elif message.value[1] is None:
            unread.add(_model_of(message.value[0]))
        else:
            replicas[key_of(message.value[0])] = message.value[1]
    return Reading(at, models, replicas, queued, refused, frozenset(unread))


def _read_replicas(
    api: ApiCalls, pods: Iterable[Object], is_cluster: bool
) -> Items[tuple[Object, ReplicaReading | None]]:
    """Yield the pages of each Pod, or None for one that ends meanwhile, is not reached, or has another server.

    Raises Forbidden without the right to read Pods through the API server.
    """
    for pod in pods:
        try:
            stats = parse_stats((yield from _page(api, pod, "/stats", is_cluster)), 0.0)
            answers = parse_latency_totals((yield from _page(api, pod, "/stats/answers", is_cluster)))
        except Forbidden:
            raise
        except KnodelError:
            yield Item((pod, None))
        else:
            yield Item((pod, ReplicaReading(_model_of(pod), stats, answers)))


def _model_of(pod: Object) -> Key:
    return Key(namespace_of(pod), labels_of(pod)[LABEL_MODEL])


def _page(api: ApiCalls, pod: Object, path: str, is_cluster: bool) -> Call[bytes]:
    """Return a page of the management port. Raises KnodelError."""
    name = name_of(pod)
    if is_cluster:
        pods = f"/api/v1/namespaces/{namespace_of(pod)}/pods"
        return (yield from api.page(f"{pods}/{name}:{MANAGEMENT_PORT}/proxy{path}", PAGE_TIMEOUT))
    endpoint = endpoint_of(pod)
    if endpoint is None:
        raise Unreachable(f"replica {name} has no address yet: wait until it is ready")
    remedy = f"check `knodel logs {labels_of(pod)[LABEL_MODEL]}`"
    address = ServerAddress(endpoint.host, endpoint.management_port, f"replica {name}", remedy)
    answer = yield from exchange(HttpRequest(address, "GET", path, timeout=PAGE_TIMEOUT))
    raise_failure(answer, api.server, path)
    return answer.content


def _queued(api: ApiCalls, namespace: str | None) -> Call[dict[Key, float]]:
    """Return the requests that wait at the activator of this machine, by Model."""
    found: list[tuple[Key, float]] = []

    def keep(line: bytes) -> Call[bool]:
        if (match := _QUEUED.match(line)) and float(match[3]):
            found.append((Key(match[1].decode(), match[2].decode()), float(match[3])))
        yield from ()
        return False

    yield from each(api.stream("/metrics", {}), keep)
    if not found:  # mostly nothing waits, then no revision has to be found
        return {}
    autoscalers = (yield from api.list(POD_AUTOSCALER, namespace, LABEL_MODEL))["items"]
    models = {key_of(one): labels_of(one)[LABEL_MODEL] for one in autoscalers}
    waiting: dict[Key, float] = {}
    for revision, count in found:
        if revision in models:
            model = Key(revision.namespace, models[revision])
            waiting[model] = waiting.get(model, 0.0) + count
    return waiting

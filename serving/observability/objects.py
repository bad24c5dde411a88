"""Prometheus metrics about the objects of Knodel: Models, WarmPools and ModelEvents. Pure, apart from one counter.

The values come from `spec` and `status`, as those of kube-state-metrics do. Each scrape computes them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, get_args

from clusters.base.objects import Object, condition_of, name_of, namespace_of
from clusters.net.exposition import Family, Labels
from serving.reconciler.rollout.state import RUNNING, Phase

PENDING_PHASE: Final = "Pending"
"""Phase of a ModelEvent without a status."""

Samples = Iterator[tuple[Labels, float]]


class RolloutCounter:
    """Counts rollouts that end while this process runs; for `Informer.subscribe`."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter(dict.fromkeys(set(get_args(Phase)) - RUNNING, 0))

    def on_model(self, before: Object | None, after: Object | None) -> None:
        """Observe a changed Model. A rollout that had ended before this process started does not count."""
        if before is None or after is None:
            return
        former, rollout = _status(before).get("rollout") or {}, _status(after).get("rollout") or {}
        phase = str(rollout.get("phase"))
        if phase in self._ended and (former.get("phase"), former.get("candidate")) != (phase, rollout.get("candidate")):
            self._ended[phase] += 1

    def families(self) -> Iterator[Family]:
        """Yield the counts by phase."""
        ended = tuple(({"phase": phase}, float(count)) for phase, count in sorted(self._ended.items()))
        yield Family("knodel_rollouts_total", "counter", "Rollouts that ended, by phase.", ended)


def model_families(models: Iterable[Object]) -> Iterator[Family]:
    """Yield the metrics of Models."""
    known = [(model, {"namespace": namespace_of(model), "model": name_of(model)}) for model in models]

    def gauge(name: str, help: str, samples: Callable[[Object, dict[str, str]], Samples]) -> Family:
        found = tuple(sample for model, labels in known for sample in samples(model, labels))
        return Family(name, "gauge", help, found)

    yield gauge("knodel_model_info", "1, with the format of the Model's files in a label.", _info)
    yield gauge("knodel_model_ready", "1 if the condition Ready of the Model is True, else 0.", _ready)
    yield gauge("knodel_model_replicas", "Replicas of all revisions, by state.", _replicas)
    yield gauge("knodel_model_traffic_percent", "Traffic of a revision, in percent.", _traffic)
    yield gauge("knodel_model_versions", "Versions in the history of the Model, by outcome.", _versions)
    yield gauge("knodel_model_rollout_phase", "1 for the phase of the Model's last rollout.", _phase)
    yield gauge("knodel_model_rollout_percent", "Traffic of the candidate of a rollout in progress.", _percent)
    yield gauge(
        "knodel_model_rollout_responses",
        "Responses that the judge counted in this step of a rollout in progress, by version and result.",
        _responses,
    )
    yield gauge(
        "knodel_model_rollout_verdict",
        "Numbers of the judge's last verdict in a rollout in progress: rates, bounds, request counts.",
        _verdict,
    )
    yield gauge("knodel_model_outbox_events", "Outcome events that are not stored yet.", _outbox)


def pool_families(pools: Iterable[Object]) -> Iterator[Family]:
    """Yield the metrics of WarmPools."""
    samples = tuple(
        ({"namespace": namespace_of(pool), "pool": name_of(pool), "state": state}, float(_status(pool).get(field) or 0))
        for pool in pools
        for state, field in (("desired", "size"), ("ready", "ready"), ("starting", "starting"), ("claimed", "claimed"))
    )
    yield Family("knodel_warm_pool_members", "gauge", "Members of a warm pool, by state.", samples)


def event_families(events: Iterable[Object]) -> Iterator[Family]:
    """Yield the metrics of ModelEvents."""
    phases = Counter((namespace_of(event), str(_status(event).get("phase") or PENDING_PHASE)) for event in events)
    samples = tuple(
        ({"namespace": namespace, "phase": phase}, float(count)) for (namespace, phase), count in sorted(phases.items())
    )
    yield Family("knodel_model_events", "gauge", "Stored events about Models, by phase.", samples)


def _info(model: Object, labels: dict[str, str]) -> Samples:
    declared = (model.get("spec") or {}).get("modelFormat")
    yield {**labels, "format": str(declared or _status(model).get("modelFormat") or "")}, 1.0


def _ready(model: Object, labels: dict[str, str]) -> Samples:
    yield labels, float((condition_of(model, "Ready") or {}).get("status") == "True")


def _replicas(model: Object, labels: dict[str, str]) -> Samples:
    counts = _status(model).get("replicas") or {}
    for state in ("desired", "ready", "starting"):
        yield {**labels, "state": state}, float(counts.get(state) or 0)


def _traffic(model: Object, labels: dict[str, str]) -> Samples:
    """Yield one sample for each revision, which may be the target of several entries."""
    percents: Counter[tuple[str, str]] = Counter()
    for entry in _status(model).get("traffic") or ():
        percents[str(entry.get("revision") or ""), str(entry.get("version") or "")] += int(entry.get("percent") or 0)
    for (revision, version), percent in percents.items():
        yield {**labels, "revision": revision, "version": version}, float(percent)


def _versions(model: Object, labels: dict[str, str]) -> Samples:
    history = _status(model).get("history") or ()
    for outcome, count in Counter(str(entry.get("outcome") or "starting") for entry in history).items():
        yield {**labels, "outcome": outcome}, float(count)


def _phase(model: Object, labels: dict[str, str]) -> Samples:
    if phase := (_status(model).get("rollout") or {}).get("phase"):
        yield {**labels, "phase": str(phase)}, 1.0


def _percent(model: Object, labels: dict[str, str]) -> Samples:
    if rollout := _in_progress(model):
        yield labels, float(rollout.get("percent") or 0)


def _responses(model: Object, labels: dict[str, str]) -> Samples:
    for version, counts in (_in_progress(model).get("counts") or {}).items():
        for result in ("requests", "errors", "refused", "left"):
            yield {**labels, "version": str(version), "result": result}, float(counts.get(result) or 0)


def _verdict(model: Object, labels: dict[str, str]) -> Samples:
    for name, value in ((_in_progress(model).get("verdict") or {}).get("numbers") or {}).items():
        yield {**labels, "number": str(name)}, float(value)


def _outbox(model: Object, labels: dict[str, str]) -> Samples:
    if outbox := _status(model).get("outbox"):
        yield labels, float(len(outbox))


def _in_progress(model: Object) -> dict[str, Any]:
    rollout: dict[str, Any] = _status(model).get("rollout") or {}
    return rollout if rollout.get("phase") in RUNNING else {}


def _status(obj: Object) -> dict[str, Any]:
    found: dict[str, Any] = obj.get("status") or {}
    return found

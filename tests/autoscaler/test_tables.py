"""The truth tables: status, service mode, scale to zero; and the settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.config import AutoscalerSettings, DecisionSettings, InvalidSettings, Sampling, Zero
from autoscaler.metrics.collector import MetricCollector, ScrapeTarget
from autoscaler.reconciler.scale_to_zero import ScaleToZero, ZeroCheck, ZeroVerdict
from autoscaler.reconciler.serverless_service import (
    ModeInputs,
    ServiceMode,
    changed_fields,
    make_serverless_service,
    wanted_activators,
    wanted_mode,
)
from autoscaler.reconciler.spec import has_expired, make_revision_spec, seconds_to_expiry
from autoscaler.reconciler.status import Scale, make_status, start_failure_of
from autoscaler.scaling.reasons import Reason, Rule, render
from autoscaler.types import POLICY_ANNOTATION, Policy
from clusters.base.objects import Key, Object
from clusters.net.endpoints import Endpoint
from tests.autoscaler.world import KEY, Activator, Replicas
from tests.support.clock import SteppedClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SKS: Object = {
    "metadata": {"generation": 1},
    "spec": {"mode": "Proxy"},
    "status": {
        "observedGeneration": 1,
        "serviceName": "m-1",
        "privateServiceName": "m-1-private",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "ActivatorEndpointsPopulated", "status": "True"},
        ],
    },
}


def autoscaler(**conditions: tuple[str, str]) -> Object:
    listed = [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind, (status, reason) in conditions.items()
    ]
    return {"metadata": {"name": "m-1", "generation": 3}, "spec": {}, "status": {"conditions": listed}}


def conditions_of(status: Object) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("reason", "")) for one in status["conditions"]}


@pytest.mark.parametrize(
    ("before", "scale", "active"),
    [
        ({}, Scale(1, 0, 1), ("Unknown", "Queued")),
        ({}, Scale(1, 1, 1), ("True", "")),
        ({}, Scale(2, 1, 2), ("Unknown", "Queued")),
        ({}, Scale(0, 0, 0), ("False", "NoTraffic")),
        ({"Active": ("True", "")}, Scale(0, 1, 1), ("False", "NoTraffic")),
        ({"Active": ("Unknown", "Queued")}, Scale(0, 0, 1), ("False", "TimedOut")),
        ({"Active": ("False", "TimedOut")}, Scale(0, 0, 1), ("False", "TimedOut")),
        ({"Active": ("False", "NoTraffic")}, Scale(1, 0, 1), ("Unknown", "Queued")),
    ],
)
def test_active(before: dict[str, tuple[str, str]], scale: Scale, active: tuple[str, str]) -> None:
    conditions = conditions_of(make_status(autoscaler(**before), SKS, scale, NOW))
    assert conditions["Active"] == active
    if active[0] != "True":
        assert conditions["Ready"] == active


def test_it_is_initialized_by_the_first_ready_replica_behind_a_known_service_and_stays_so() -> None:
    fresh = autoscaler()
    without_name = {**SKS, "status": {}}
    assert (
        conditions_of(make_status(fresh, without_name, Scale(1, 1, 1), NOW))["ScaleTargetInitialized"][0] == "Unknown"
    )
    assert conditions_of(make_status(fresh, SKS, Scale(1, 0, 1), NOW))["ScaleTargetInitialized"][0] == "Unknown"
    assert conditions_of(make_status(fresh, SKS, Scale(1, 1, 1), NOW))["ScaleTargetInitialized"][0] == "True"
    once = autoscaler(ScaleTargetInitialized=("True", ""))
    assert conditions_of(make_status(once, SKS, Scale(0, 0, 1), NOW))["ScaleTargetInitialized"][0] == "True"


def test_ready_is_false_then_unknown_then_true_by_the_worst_of_the_others() -> None:
    unready = {**SKS, "status": {"serviceName": "m-1", "conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert conditions_of(make_status(autoscaler(), unready, Scale(1, 1, 1), NOW))["Ready"] == ("Unknown", "NotReady")
    status = make_status(autoscaler(), SKS, Scale(1, 1, 1), NOW)
    assert conditions_of(status)["Ready"] == ("True", "")
    assert (status["serviceName"], status["metricsServiceName"]) == ("m-1", "m-1-private")
    assert (status["desiredScale"], status["actualScale"], status["observedGeneration"]) == (1, 1, 3)


def test_who_is_not_heard_is_a_condition_of_its_own_that_nothing_follows_from() -> None:
    made = autoscaler()
    assert "MetricsAvailable" not in conditions_of(make_status(made, SKS, Scale(1, 1, 1), NOW))
    made["status"] = make_status(made, SKS, Scale(1, 1, 1), NOW, unavailable="no replica reports its load")
    silent = conditions_of(made["status"])
    assert (silent["MetricsAvailable"], silent["Ready"]) == (("False", "MetricsUnavailable"), ("True", ""))
    assert conditions_of(make_status(made, SKS, Scale(1, 1, 1), NOW))["MetricsAvailable"] == ("True", "")


def test_a_replica_that_does_not_start_beside_one_that_serves_is_a_condition_that_nothing_follows_from() -> None:
    made = autoscaler()
    assert "ReplicasStarted" not in conditions_of(make_status(made, SKS, Scale(2, 1, 1), NOW, progress="50 %"))
    made["status"] = make_status(made, SKS, Scale(2, 1, 1), NOW, failure="Unschedulable: 0/1 nodes: no room")
    found = conditions_of(made["status"])
    assert (found["ReplicasStarted"], found["Ready"]) == (("False", "Unschedulable"), ("True", ""))
    assert start_failure_of(made) == ("Unschedulable", "0/1 nodes: no room")
    made["status"] = make_status(made, SKS, Scale(2, 2, 1), NOW)
    assert conditions_of(made["status"])["ReplicasStarted"] == ("True", "")
    assert start_failure_of(made) == start_failure_of(autoscaler()) == ("", "")


def test_a_status_made_again_is_the_same() -> None:
    made = autoscaler()
    made["status"] = make_status(made, SKS, Scale(1, 1, 1), NOW)
    assert make_status(made, SKS, Scale(1, 1, 1), NOW + timedelta(hours=1)) == made["status"]


def test_a_start_expires_when_its_deadline_and_the_diagnosis_are_over_and_stays_so_until_it_is_tried_again() -> None:
    starting, zero = autoscaler(Active=("Unknown", "Queued")), Zero(progress_deadline=50.0, diagnosis=10.0)
    assert seconds_to_expiry(starting, zero, NOW + timedelta(seconds=20)) == 40.0
    assert not has_expired(starting, zero, NOW + timedelta(seconds=59))
    assert has_expired(starting, zero, NOW + timedelta(seconds=60))
    assert seconds_to_expiry(starting, zero, NOW + timedelta(seconds=60)) is None
    assert has_expired(autoscaler(Active=("False", "TimedOut")), zero, NOW)
    starting["metadata"]["annotations"] = {"serving.knative.dev/progress-deadline": "2m"}
    assert not has_expired(starting, zero, NOW + timedelta(seconds=129))


@pytest.mark.parametrize(
    ("traffic", "mode"),
    [
        ({"desired": 0}, ServiceMode.PROXY),
        ({"ready": 0}, ServiceMode.PROXY),
        ({"queued": 1}, ServiceMode.PROXY),
        ({"burst_capacity": -1.0}, ServiceMode.PROXY),
        ({"burst_capacity": 5.0, "work": 4.0}, ServiceMode.PROXY),
        ({"burst_capacity": 4.0, "work": 4.0}, ServiceMode.SERVE),
        ({}, ServiceMode.SERVE),
    ],
)
def test_mode(traffic: dict[str, Any], mode: ServiceMode) -> None:
    usual = {"desired": 2, "ready": 2, "queued": 0, "work": 1.0, "slots": 4.0, "burst_capacity": 0.0}
    assert wanted_mode(ModeInputs(**{**usual, **traffic})) is mode


def test_a_serverless_service_that_is_as_it_should_be_needs_no_patch() -> None:
    owner: Object = {
        "metadata": {"name": "m-1", "namespace": "default", "uid": "u", "labels": {"a": "b"}},
        "spec": {"scaleTargetRef": {"name": "m-1-deployment"}},
    }
    wanted = make_serverless_service(owner, ServiceMode.PROXY)
    assert changed_fields(wanted, wanted) == {}
    assert changed_fields(wanted, make_serverless_service(owner, ServiceMode.SERVE)) == {"spec": {"mode": "Serve"}}
    assert changed_fields({**wanted, "metadata": {"labels": {"c": "d"}}}, wanted) == {
        "metadata": {"labels": {"a": "b"}}
    }


class ProbeFails:
    def __init__(self) -> None:
        self.ports: list[int] = []

    async def in_path(self, key: Key, port: int) -> bool:
        self.ports.append(port)
        return False


POD = (Endpoint("default/m-1-a", "127.0.0.1", 1, 2),)


class Path:
    def __init__(self, zero: Zero | None = None, prober: ProbeFails | None = None) -> None:
        self.clock = SteppedClock()
        self.replicas = Replicas(self.clock)
        self.activator = Activator()
        collector = MetricCollector(self.replicas, Sampling())
        self.collector = collector
        self.walk = ScaleToZero(collector, self.activator, self.clock, zero or Zero(), prober)

    async def check(
        self, service: Object | None = SKS, pods: tuple[Endpoint, ...] = POD
    ) -> tuple[ZeroVerdict, float | None]:
        look = await self.walk.check(service, KEY, pods)
        return look.verdict, look.after


async def test_the_path_to_zero() -> None:
    path = Path()
    assert await path.check(None) == (ZeroVerdict.WAIT, None)
    assert await path.check({**SKS, "spec": {"mode": "Serve"}}) == (ZeroVerdict.WAIT, None)
    assert await path.check({**SKS, "metadata": {"generation": 2}}) == (ZeroVerdict.WAIT, None)
    assert await path.check() == (ZeroVerdict.GO, None)
    assert await path.check(pods=()) == (ZeroVerdict.GO, None)
    path.replicas.work("m-1-a", 1.0)
    assert await path.check() == (ZeroVerdict.BUSY, None)
    path.replicas.silent.add("m-1-a")
    assert await path.check() == (ZeroVerdict.WAIT, 1.0)
    path.activator.holds(active=1)
    assert await path.check() == (ZeroVerdict.BUSY, None)


async def test_work_between_the_last_tick_and_the_last_look_is_seen_although_it_is_over() -> None:
    path = Path()
    path.replicas.serve("m-1-a", 3)
    await path.collector.read({KEY: ScrapeTarget(POD, 4.0)})
    assert await path.check() == (ZeroVerdict.GO, None)
    path.replicas.serve("m-1-a")
    assert await path.check() == (ZeroVerdict.BUSY, None)


async def test_the_grace_runs_from_when_the_activator_is_in_the_path_and_anew_after_it_left() -> None:
    path = Path(Zero(grace=30.0))
    assert await path.check() == (ZeroVerdict.WAIT, 30.0)
    path.clock.step(20.0)
    assert await path.check() == (ZeroVerdict.WAIT, 10.0)
    await path.check({**SKS, "spec": {"mode": "Serve"}})
    assert await path.check() == (ZeroVerdict.WAIT, 30.0)
    path.clock.step(30.0)
    assert await path.check() == (ZeroVerdict.GO, None)


async def test_where_there_is_a_prober_its_word_is_needed_too() -> None:
    prober = ProbeFails()
    path = Path(prober=prober)
    assert await path.walk.check(SKS, KEY, POD) == ZeroCheck(ZeroVerdict.WAIT, 1.0, "ActivatorProbeFailed")
    await path.check({**SKS, "spec": {**SKS["spec"], "protocolType": "h2c"}})
    assert prober.ports == [80, 81]


async def test_activators_that_do_not_say_what_they_hold_now_are_waited_for() -> None:
    path = Path()
    path.activator.answers = False
    assert await path.walk.check(SKS, KEY, POD) == ZeroCheck(ZeroVerdict.WAIT, 1.0, "MetricsUnavailable")
    path.activator.answers = True
    assert await path.check() == (ZeroVerdict.GO, None)


async def test_what_no_route_leads_to_needs_neither_probe_nor_activators() -> None:
    path = Path(prober=ProbeFails())
    path.activator.answers = False
    assert await path.walk.check(SKS, KEY, POD, reachable=False) == ZeroCheck(ZeroVerdict.GO)
    path.replicas.silent.add("m-1-a")
    assert (await path.walk.check(SKS, KEY, POD, reachable=False)).reason == "MetricsUnavailable"


@pytest.mark.parametrize("limit", [0, 2, 100])
def test_the_hard_limit_of_a_revision_bounds_the_slots_of_its_replicas(limit: int) -> None:
    made = autoscaler()
    policy = Policy(scale_target=4.0)
    made["spec"] = {"containerConcurrency": limit}
    made["metadata"]["annotations"] = {POLICY_ANNOTATION: policy.to_json()}
    assert make_revision_spec(made, policy, Zero(), NOW).slots == (2.0 if limit == 2 else 4.0)


@pytest.mark.parametrize(("limit", "slots"), [(0, 100.0), (2, 2.0), (250, 250.0)])
def test_the_hard_limit_stands_for_a_target_that_a_plain_service_does_not_name(limit: int, slots: float) -> None:
    made = autoscaler()
    made["spec"] = {"containerConcurrency": limit}
    assert make_revision_spec(made, Policy.from_annotations({}), Zero(), NOW).slots == slots


@pytest.mark.parametrize(
    ("ready", "burst", "activators"), [(9, 0.0, 2), (1, 211.0, 4), (1, -1.0, 2), (7, -1.0, 7), (0, 50.0, 2)]
)
def test_as_many_activators_are_in_the_path_as_replicas_and_a_burst_call_for(
    ready: int, burst: float, activators: int
) -> None:
    assert wanted_activators(ready, 100.0, burst) == activators


def test_every_rule_has_words() -> None:
    words = dict.fromkeys(_names(), 1.0)
    for rule in Rule:
        assert render(Reason(rule, 1, 2, words)).endswith(("2", "s"))


def _names() -> tuple[str, ...]:
    return (
        "work", "window", "per_replica", "queued", "crowd", "backlog", "threshold", "ready", "remaining", "current",
        "covered", "least", "most", "activation", "delay", "idle", "limit",
        "latency", "objective", "peak", "hold", "start_time",
    )  # fmt: skip


def test_settings_out_of_range_are_all_named() -> None:
    with pytest.raises(InvalidSettings, match=r"scaling\.panic_threshold.*workers"):
        AutoscalerSettings(scaling=DecisionSettings(panic_threshold=0.5), workers=0)
    with pytest.raises(InvalidSettings, match=r"sampling\.timeout: must be from 0.01 to 1, not 2"):
        AutoscalerSettings(sampling=Sampling(timeout=2.0))

"""Objects that Knative's webhook rejects are rejected with all faults and their paths, and valid ones are accepted."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.clock import SystemClock
from clusters.base.errors import Invalid
from clusters.base.objects import CONFIGURATION, REVISION, ROUTE, SERVICE, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative.configuration import make_revision
from clusters.embedded.store.store import Store
from tests.clusters.knative.stage import configuration, route, service
from tests.support.knative_webhook.annotation_rules import ALLOW_ZERO_INITIAL_SCALE
from tests.support.knative_webhook.validation import KNATIVE_FEATURES, VALIDATORS, validators

ALL = [{"latestRevision": True, "percent": 100}]


def faults(obj: Object, old: Object | None = None) -> dict[str, str]:
    """Return path → message of all faults."""
    kind = {kind.kind: kind for kind in (SERVICE, CONFIGURATION, ROUTE, REVISION)}[obj["kind"]]
    found: dict[str, str] = {}
    for fault in VALIDATORS[kind](old, obj):
        found[fault.path] = " | ".join(filter(None, (found.get(fault.path), fault.message)))
    return found


def with_at(obj: Object, path: str, value: Any) -> Object:
    """Return a copy of `obj` with `value` at a dotted path; numbers are list positions."""
    changed = copy.deepcopy(obj)
    *way, last = [int(step) if step.isdecimal() else step.replace("|", ".") for step in path.split(".")]
    place: Any = changed
    for step in way:
        place = place.setdefault(step, {}) if isinstance(step, str) else place[step]
    place[last] = value
    return changed


POD = "spec.template.spec"
BOX = f"{POD}.containers.0"
WHERE = "spec.template.spec.containers[0]"
NOTE = "spec.template.metadata.annotations"


def stored_revision() -> Object:
    """Return a Revision as the Configuration reconciler creates it."""
    owner = configuration("magika")
    owner["metadata"] |= {"uid": "u", "generation": 1}
    return make_revision(owner, datetime(2026, 1, 1, tzinfo=UTC))


def test_what_the_stand_in_and_its_users_make_is_accepted() -> None:
    assert faults(service()) == {}
    assert faults(service(traffic=[{"revisionName": "magika-00001", "percent": 100, "tag": "blue"}])) == {}
    assert faults(configuration("magika-gpu")) == {}
    assert faults(route("magika", [{"configurationName": "magika-gpu", "percent": 100}])) == {}
    assert faults(stored_revision()) == {}


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("spc", {}, "spc", "unknown field"),
        ("spec.templates", {}, "spec.templates", "unknown field"),
        (f"{POD}.container", [], f"{POD}.container", "unknown field"),
        (f"{BOX}.imagename", "x", f"{WHERE}.imagename", "unknown field"),
        ("metadata.name", "Magika", "metadata.name", "DNS 1035"),
        ("metadata.name", "1magika", "metadata.name", "DNS 1035"),
        ("metadata.name", "m" * 64, "metadata.name", "at most 63"),
        ("spec.template", None, "spec.template", "missing field"),
        (f"{POD}.containers", [], f"{POD}.containers", "one container is required"),
        (f"{POD}.containers", {}, f"{POD}.containers", "a list is expected"),
        (f"{POD}.containers.0", "x", WHERE, "a map is expected"),
        (f"{POD}.nodeSelector", {"a": "b"}, f"{POD}.nodeSelector", "kubernetes.podspec-nodeselector is off"),
        (f"{POD}.tolerations", [{}], f"{POD}.tolerations", "kubernetes.podspec-tolerations is off"),
        (f"{POD}.hostNetwork", True, f"{POD}.hostNetwork", "kubernetes.podspec-hostnetwork is off"),
        (f"{POD}.nodeName", "n", f"{POD}.nodeName", "Knative does not allow this field"),
        (f"{POD}.automountServiceAccountToken", True, f"{POD}.automountServiceAccountToken", "only false"),
        (f"{POD}.containerConcurrency", 1001, f"{POD}.containerConcurrency", "expected 0 <= 1001 <= 1000"),
        (f"{POD}.containerConcurrency", -1, f"{POD}.containerConcurrency", "expected 0 <= -1 <= 1000"),
        (f"{POD}.containerConcurrency", "4", f"{POD}.containerConcurrency", "an integer"),
        (f"{POD}.timeoutSeconds", 601, f"{POD}.timeoutSeconds", "expected 0 <= 601 <= 600"),
        (f"{POD}.timeoutSeconds", True, f"{POD}.timeoutSeconds", "an integer"),
        (f"{BOX}.image", "", f"{WHERE}.image", "an image is required"),
        (f"{BOX}.image", "UPPER/case", f"{WHERE}.image", "parse image reference"),
        (f"{BOX}.lifecycle", {"preStop": {}}, f"{WHERE}.lifecycle", "Knative does not allow this field"),
        (f"{BOX}.name", "queue-proxy", f"{WHERE}.name", "reserved container name"),
        (f"{BOX}.env", [{"name": "PORT", "value": "1"}], f"{WHERE}.env[0].name", "reserved environment variable"),
        (f"{BOX}.env", [{"name": "A", "value": 1}], f"{WHERE}.env[0].value", "a string is expected"),
        (f"{BOX}.env", [{"value": "1"}], f"{WHERE}.env[0].name", "a name is required"),
        (
            f"{BOX}.env",
            [{"name": "A", "valueFrom": {"fieldRef": {}}}],
            f"{WHERE}.env[0].valueFrom.fieldRef",
            "kubernetes.podspec-fieldref is off",
        ),
        (f"{BOX}.envFrom", [{"prefix": "A"}], f"{WHERE}.envFrom[0]", "got neither"),
        (f"{BOX}.args", "x", f"{WHERE}.args", "a list is expected"),
        (f"{BOX}.args", [1], f"{WHERE}.args[0]", "a string is expected"),
        (f"{BOX}.ports", [{"containerPort": 8012}], f"{WHERE}.ports[0].containerPort", "reserved port"),
        (f"{BOX}.ports", [{"containerPort": 70000}], f"{WHERE}.ports[0].containerPort", "<= 65535"),
        (f"{BOX}.ports", [{"containerPort": 80, "name": "grpc"}], f"{WHERE}.ports[0].name", "'h2c', 'http1'"),
        (f"{BOX}.ports", [{"containerPort": 80, "protocol": "UDP"}], f"{WHERE}.ports[0].protocol", "only TCP"),
        (f"{BOX}.ports", [{"containerPort": 80, "hostPort": 80}], f"{WHERE}.ports[0].hostPort", "not allow"),
        (
            f"{BOX}.ports",
            [{"containerPort": 80}, {"containerPort": 81}],
            f"{POD}.containers",
            "only a single port",
        ),
        (f"{BOX}.resources", {"claims": [{}]}, f"{WHERE}.resources.claims", "not allow"),
        (f"{BOX}.resources", {"limits": {"cpu": "much"}}, f"{WHERE}.resources.limits.cpu", "not a quantity"),
        (f"{BOX}.securityContext", {"privileged": True}, f"{WHERE}.securityContext.privileged", "only false"),
        (
            f"{BOX}.securityContext",
            {"capabilities": {"add": ["NET_ADMIN"]}},
            f"{WHERE}.securityContext.capabilities.add",
            "kubernetes.containerspec-addcapabilities is off",
        ),
        (f"{BOX}.securityContext", {"runAsUser": -1}, f"{WHERE}.securityContext.runAsUser", "expected 0"),
        (f"{BOX}.imagePullPolicy", "Sometimes", f"{WHERE}.imagePullPolicy", "use one of Always"),
        (f"{BOX}.volumeMounts", [{"name": "x", "mountPath": "/x"}], f"{WHERE}.volumeMounts[0].name", "no matching"),
        (f"{BOX}.livenessProbe", {}, f"{WHERE}.livenessProbe", "got neither"),
        (f"{BOX}.readinessProbe", {"httpGet": {}, "tcpSocket": {}}, f"{WHERE}.readinessProbe", "got both"),
        (f"{BOX}.readinessProbe", {"timeoutSeconds": 2}, f"{WHERE}.readinessProbe.timeoutSeconds", "disallowed"),
        (
            f"{BOX}.readinessProbe",
            {"httpGet": {"port": "other"}},
            f"{WHERE}.readinessProbe.httpGet.port",
            "must match container port",
        ),
        (f"{BOX}.startupProbe", {"exec": {"shell": "sh"}}, f"{WHERE}.startupProbe.exec.shell", "unknown field"),
        ("spec.template.metadata.name", "magika-v1", "spec.template.metadata.name", "must not be set"),
        ("spec.template.metadata.namespace", "x", "spec.template.metadata.namespace", "unknown field"),
        ("spec.template.metadata.labels", {"a": 1}, "spec.template.metadata.labels[a]", "a string is expected"),
        (
            "metadata.annotations",
            {"autoscaling.knative.dev/min-scale": "1"},
            "metadata.annotations[autoscaling.knative.dev/min-scale]",
            'under "spec.template.metadata.annotations"',
        ),
        (
            "metadata.annotations",
            {"serving.knative.dev/rollout-duration": "1.5s"},
            "metadata.annotations[serving.knative.dev/rollout-duration]",
            "second precision",
        ),
        (
            f"{NOTE}",
            {"serving.knative.dev/progress-deadline": "ten"},
            f"{NOTE}[serving.knative.dev/progress-deadline]",
            "must be a duration",
        ),
    ],
)
def test_a_bad_field_is_refused_at_its_path(path: str, value: Any, where: str, said: str) -> None:
    found = faults(with_at(service(), path, value))
    assert said in found.get(where, ""), found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("min-scale", "-1", "expected 0 <= -1"),
        ("max-scale", "many", "an integer"),
        ("initial-scale", "0", "not allowed by cluster"),
        ("target", "0", "expected 0.01"),
        ("target", "nan", "expected 0.01"),
        ("target-utilization-percentage", "101", "<= 100"),
        ("target-burst-capacity", "-2", "expected 0"),
        ("panic-window-percentage", "0.5", "expected 1"),
        ("panic-threshold-percentage", "100", "expected 110"),
        ("window", "5s", "expected 6s"),
        ("window", "2h", "<= 3600s"),
        ("window", "6500ms", "second precision"),
        ("scale-down-delay", "-1s", "expected 0s"),
        ("scale-to-zero-pod-retention-period", "soon", "must be a duration"),
        ("class", "mine.autoscaling.knative.dev", "a class of another domain"),
        ("metric", "cpu", "concurrency, rps"),
        ("activation-scale", "1", "greater than 1"),
    ],
)
def test_an_autoscaling_annotation_out_of_range_is_refused(name: str, value: str, said: str) -> None:
    annotation = f"autoscaling.knative.dev/{name}"
    found = faults(with_at(service(), NOTE, {annotation: value}))
    assert said in found.get(f"{NOTE}[{annotation}]", ""), found


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("networking.knative.dev/speed", "high", "invalid key name"),
        ("queue.sidecar.serving.knative.dev/cpu-resource-limit", "much", "not a quantity"),
        ("queue.sidecar.serving.knative.dev/resource-percentage", "0", "expected 0.1"),
    ],
)
def test_an_annotation_for_others_is_checked_too(key: str, value: str, said: str) -> None:
    found = faults(with_at(service(), NOTE, {key: value}))
    assert said in found.get(f"{NOTE}[{key}]", ""), found


def test_an_algorithm_is_checked_for_knatives_own_class_only() -> None:
    algorithm = {"autoscaling.knative.dev/metric-aggregation-algorithm": "median"}
    own_class = {"autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev"}
    assert faults(with_at(service(), NOTE, algorithm)) == {}
    assert list(faults(with_at(service(), NOTE, algorithm | own_class))) == [f"{NOTE}[{next(iter(algorithm))}]"]


def test_scales_are_compared_with_each_other() -> None:
    scales = {"min-scale": "5", "max-scale": "4", "activation-scale": "5"}
    found = faults(with_at(service(), NOTE, {f"autoscaling.knative.dev/{key}": text for key, text in scales.items()}))
    assert found[f"{NOTE}[autoscaling.knative.dev/max-scale]"] == "max-scale=4 is less than min-scale=5"
    assert "max-scale=4 is less than" in found[f"{NOTE}[autoscaling.knative.dev/activation-scale]"]


@pytest.mark.parametrize(
    ("traffic", "where", "said"),
    [
        ([{"latestRevision": True, "percent": 90}], "spec.traffic", "Traffic targets sum to 90, want 100"),
        ([{"latestRevision": True, "percent": 101}], "spec.traffic[0].percent", "expected 0 <= 101 <= 100"),
        ([{"latestRevision": True, "percent": "100"}], "spec.traffic[0].percent", "an integer"),
        ([{"latestRevision": False, "percent": 100}], "spec.traffic[0].latestRevision", "may not set revisionName"),
        ([{**ALL[0], "revisionName": "a"}], "spec.traffic[0].latestRevision", "may not set revisionName"),
        ([{"configurationName": "a", "percent": 100}], "spec.traffic[0].configurationName", "must not be set"),
        ([{**ALL[0], "tag": "Blue"}], "spec.traffic[0].tag", "DNS 1035"),
        ([{**ALL[0], "tag": "b" * 60}], "spec.traffic[0].tag", "at most 63"),
        ([{**ALL[0], "tag": "a"}, {"revisionName": "x", "tag": "a"}], "spec.traffic[1].tag", "Multiple definitions"),
        ([{**ALL[0], "url": "http://x"}], "spec.traffic[0].url", "must not be set"),
        ([{"revisionName": "a b", "percent": 100}], "spec.traffic[0].revisionName", "is not a key"),
        ([{**ALL[0], "weight": 1}], "spec.traffic[0].weight", "unknown field"),
        ({}, "spec.traffic", "a list is expected"),
    ],
)
def test_bad_traffic_of_a_service_is_refused(traffic: Any, where: str, said: str) -> None:
    found = faults(service(traffic=traffic))
    assert said in found.get(where, ""), found


@pytest.mark.parametrize(
    ("traffic", "where", "said"),
    [
        ([], "spec.traffic", "sum to 0"),
        (ALL, "spec.traffic[0]", "got neither"),
        ([{"revisionName": "a", "configurationName": "b", "percent": 100}], "spec.traffic[0]", "got both"),
    ],
)
def test_a_route_of_its_own_names_where_the_traffic_goes(traffic: list[Object], where: str, said: str) -> None:
    found = faults(route("magika", traffic))
    assert said in found.get(where, ""), found


def test_all_faults_are_told_at_once() -> None:
    bad = with_at(with_at(service(traffic=[]), f"{POD}.timeoutSeconds", 700), f"{BOX}.image", "")
    assert set(faults(bad)) == {f"{POD}.timeoutSeconds", f"{WHERE}.image"}


def test_several_containers_need_exactly_one_port() -> None:
    two = with_at(service(), f"{POD}.containers", [{"image": "a"}, {"image": "b"}])
    assert "must have a port" in faults(two)[f"{POD}.containers"]
    named = with_at(two, f"{BOX}.ports", [{"containerPort": 80}])
    assert faults(named) == {}
    off = validators(KNATIVE_FEATURES - {"multi-container"})[SERVICE](None, named)
    assert [fault.message for fault in off] == [
        "multi-container is off, but found 2 containers: exactly one is allowed"
    ]


@pytest.mark.parametrize(
    ("volume", "mount", "where", "said"),
    [
        ({"hostPath": {"path": "/"}}, {}, f"{POD}.volumes[0].hostPath", "kubernetes.podspec-volumes-hostpath is off"),
        ({"persistentVolumeClaim": {}}, {}, f"{POD}.volumes[0].persistentVolumeClaim", "volume-claim is off"),
        ({}, {}, f"{POD}.volumes[0]", "got neither"),
        ({"emptyDir": {}, "secret": {}}, {}, f"{POD}.volumes[0]", "got both"),
        ({"emptyDir": {}}, {"mountPath": "x"}, f"{WHERE}.volumeMounts[0].mountPath", "absolute path"),
        ({"emptyDir": {}}, {"mountPath": "/dev/../"}, f"{WHERE}.volumeMounts[0].mountPath", "reserved path"),
        ({"secret": {}}, {"readOnly": "no"}, f"{WHERE}.volumeMounts[0].readOnly", "a boolean"),
        ({"secret": {"items": [{"key": "k"}]}}, {}, f"{POD}.volumes[0].secret.items[0].path", "missing field"),
        ({"projected": {"sources": [{}]}}, {}, f"{POD}.volumes[0].projected.sources[0]", "got neither"),
        (
            {"projected": {"sources": [{"secret": {"items": [{"path": "p"}], "name": "s"}}]}},
            {},
            f"{POD}.volumes[0].projected.sources[0].secret.items[0].key",
            "missing field",
        ),
        ({"emptyDir": {"medium": "Disk"}}, {}, f"{POD}.volumes[0].emptyDir.medium", "only Memory"),
        ({"emptyDir": {"sizeLimit": "-1"}}, {}, f"{POD}.volumes[0].emptyDir.sizeLimit", "not be negative"),
        ({"emptyDir": {}}, {"name": "y"}, f"{POD}.volumes[0].name", "not mounted"),
    ],
)
def test_bad_volumes_are_refused(volume: Object, mount: Object, where: str, said: str) -> None:
    obj = with_at(service(), f"{POD}.volumes", [{"name": "x", **volume}])
    found = faults(with_at(obj, f"{BOX}.volumeMounts", [{"name": "x", "mountPath": "/x", **mount}]))
    assert said in found.get(where, ""), found


def test_an_empty_dir_is_allowed_as_knative_is_shipped() -> None:
    obj = with_at(service(), f"{POD}.volumes", [{"name": "x", "emptyDir": {}}])
    assert faults(with_at(obj, f"{BOX}.volumeMounts", [{"name": "x", "mountPath": "/tmp"}])) == {}


def test_a_feature_that_is_on_lets_its_field_through() -> None:
    features = KNATIVE_FEATURES | {"kubernetes.podspec-nodeselector", ALLOW_ZERO_INITIAL_SCALE}
    obj = with_at(service(), f"{POD}.nodeSelector", {"gpu": "a100"})
    obj = with_at(obj, NOTE, {"autoscaling.knative.dev/initial-scale": "0"})
    assert validators(features)[SERVICE](None, obj) == ()


@pytest.mark.parametrize("maker", [configuration("x"), route("x", [{"configurationName": "x", "percent": 100}])])
def test_the_services_label_is_for_the_services_children(maker: Object) -> None:
    labelled = with_at(maker, "metadata.labels", {"serving.knative.dev/service": "magika"})
    where = "metadata.labels[serving.knative.dev/service]"
    assert "the Service 'magika' does not own" in faults(labelled)[where]
    owner = [{"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "magika", "uid": "u"}]
    assert faults(with_at(labelled, "metadata.ownerReferences", owner)) == {}


def test_a_revisions_spec_never_changes_but_its_annotations_may() -> None:
    old = stored_revision()
    assert "Immutable fields changed" in faults(with_at(old, "spec.timeoutSeconds", 9), old)["spec.timeoutSeconds"]
    assert faults(with_at(old, "metadata.annotations", {"serving.knative.dev/no-gc": "true"}), old) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
PLACES = [
    "spec",
    "spec.template",
    "spec.traffic",
    "spec.template.metadata",
    NOTE,
    POD,
    BOX,
    *(
        f"{BOX}.{field}"
        for field in ("ports", "env", "envFrom", "volumeMounts", "resources", "securityContext", "image")
    ),
    f"{BOX}.readinessProbe",
    f"{BOX}.readinessProbe.httpGet",
    f"{POD}.volumes",
    f"{POD}.containers",
]


@given(place=st.sampled_from(PLACES), value=JSON, key=st.sampled_from(["", "name", "tag", "percent"]))
def test_no_value_anywhere_makes_a_validator_raise(place: str, value: Any, key: str) -> None:
    bad = {key: value} if key else value
    for wrong in (bad, [bad]):
        for fault in VALIDATORS[SERVICE](None, with_at(service(), place, wrong)):
            assert fault.path
            assert fault.message


async def test_the_cluster_refuses_at_its_door(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cluster.db")
    cluster = EmbeddedCluster(store, clock=SystemClock(), validators=VALIDATORS)
    with pytest.raises(Invalid) as refused:
        await cluster.create(SERVICE, service(traffic=[{"percent": 99}]), manager="test")
    assert [cause.path for cause in refused.value.causes] == ["spec.traffic"]
    await cluster.create(SERVICE, service(), manager="test")
    await store.close()

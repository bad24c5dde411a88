"""The conditions of a Revision, from its Deployment, first Pod and PodAutoscaler.

The expected values are a recording of a real cluster, where each step was simulated in the same way.
"""

from __future__ import annotations

import pytest

from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Object,
    annotations_of,
    condition_of,
)
from clusters.embedded.knative import KnativeSettings
from clusters.embedded.knative.lifecycle import RevisionStatus
from clusters.embedded.knative.revision_resources import make_deployment
from tests.clusters.knative.stage import CLASS, WAITING, Stage, condition, conditions, service

FIRST = "magika-00001"


def revision_with(**annotations: str) -> Object:
    """A Revision as it is stored."""
    return {
        "metadata": {
            "name": FIRST,
            "namespace": "default",
            "uid": "u-1",
            "labels": {"serving.knative.dev/configuration": "magika", "serving.knative.dev/service": "magika"},
            "annotations": annotations,
        },
        "spec": {
            "timeoutSeconds": 60,
            "containerConcurrency": 0,
            "containers": [
                {
                    "name": "user-container",
                    "image": "dev.local/server:1",
                    "ports": [{"containerPort": 9000, "name": "h2c"}],
                    "env": [{"name": "A", "value": "b"}],
                    "readinessProbe": {"httpGet": {"path": "/ready"}},
                    "livenessProbe": {"httpGet": {"path": "/live", "port": 9095}},
                    "startupProbe": {"tcpSocket": {"port": "h2c"}},
                }
            ],
        },
    }


def test_the_container_learns_its_names_and_its_port() -> None:
    container = make_deployment(revision_with(), KnativeSettings())["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [
        {"name": "A", "value": "b"},
        {"name": "PORT", "value": "9000"},
        {"name": "K_REVISION", "value": FIRST},
        {"name": "K_CONFIGURATION", "value": "magika"},
        {"name": "K_SERVICE", "value": "magika"},
    ]
    assert container["ports"] == [{"name": "user-port", "containerPort": 9000}]


def test_a_probe_without_a_port_number_asks_the_user_port() -> None:
    container = make_deployment(revision_with(), KnativeSettings())["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["port"] == 9000
    assert container["startupProbe"]["tcpSocket"]["port"] == 9000
    assert container["livenessProbe"]["httpGet"]["port"] == 9095


def test_a_deployment_starts_at_the_initial_scale_with_the_revisions_deadlines() -> None:
    annotations = {
        "autoscaling.knative.dev/initial-scale": "3",
        "serving.knative.dev/progress-deadline": "1m30s",
        "example.com/mine": "x",
        "serving.knative.dev/routes": "magika",
    }
    deployment = make_deployment(revision_with(**annotations), KnativeSettings())
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["progressDeadlineSeconds"] == 90
    pod = deployment["spec"]["template"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 60
    kept = {"serving.knative.dev/progress-deadline": "1m30s", "example.com/mine": "x"}
    assert pod["metadata"]["annotations"] == deployment["metadata"]["annotations"] == kept
    assert make_deployment(revision_with(), KnativeSettings())["spec"]["replicas"] == 1
    assert make_deployment(revision_with(), KnativeSettings())["spec"]["progressDeadlineSeconds"] == 600


def test_a_pod_spec_has_no_field_of_the_revision_alone() -> None:
    spec = make_deployment(revision_with(), KnativeSettings())["spec"]["template"]["spec"]
    assert spec.keys() == {"containers", "terminationGracePeriodSeconds"}


async def test_s0_a_ready_pod_without_an_autoscaler_is_not_enough(stage: Stage) -> None:
    await stage.apply(service())
    await stage.deployment_reports(FIRST, 1)
    await stage.reports(REVISION, FIRST, "True", type="ContainerHealthy")
    for waiting in ("Active", "Ready", "ResourcesAvailable"):
        await stage.reports(REVISION, FIRST, WAITING, "Deploying", type=waiting)


async def test_s2_each_status_field_of_the_autoscaler_brings_the_revision_further(stage: Stage) -> None:
    await stage.apply(service())
    await stage.deployment_reports(FIRST, 1)
    await stage.appears(POD_AUTOSCALER, FIRST)

    async def autoscaler(status: Object) -> None:
        patch = {"status": status}
        await stage.cluster.patch(POD_AUTOSCALER, FIRST, patch, "default", manager="autoscaler", subresource="status")

    await autoscaler({"conditions": conditions(Ready=condition("True"))})
    await stage.reports(REVISION, FIRST, "True", type="Active")
    await stage.reports(REVISION, FIRST, WAITING, "Deploying", type="ResourcesAvailable")
    await autoscaler({"conditions": conditions(Ready=condition("True"), ScaleTargetInitialized=condition("True"))})
    await stage.quiet()
    await stage.reports(REVISION, FIRST, WAITING, "Deploying", type="ResourcesAvailable")
    await autoscaler({"serviceName": FIRST})
    await stage.reports(REVISION, FIRST, "True")
    await autoscaler({"actualScale": 1, "desiredScale": 2})
    revision = await stage.becomes(REVISION, FIRST, lambda found: "actualReplicas" in found["status"])
    assert (revision["status"]["actualReplicas"], revision["status"]["desiredReplicas"]) == (1, 2)


async def test_s4_to_s6_a_revision_at_zero_is_ready_and_comes_back(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    idle = condition("False", "NoTraffic", "The target is not receiving traffic.")
    await stage.autoscaler_reports(FIRST, idle, scale=0)
    await stage.deployment_reports(FIRST, 0, replicas=0)
    await stage.cluster.scale(DEPLOYMENT, f"{FIRST}-deployment", "default", 0, manager="autoscaler")
    found = await stage.reports(REVISION, FIRST, "False", idle["reason"], idle["message"], type="Active")
    assert found["status"]["actualReplicas"] == 0
    await stage.quiet()
    for kind, name in ((REVISION, FIRST), (CONFIGURATION, "magika"), (ROUTE, "magika"), (SERVICE, "magika")):
        await stage.reports(kind, name, "True")
    await stage.autoscaler_reports(FIRST, condition("True"))
    await stage.reports(REVISION, FIRST, "True", type="Active")


async def test_z1_and_z2_a_scale_that_was_never_reached_fails_until_it_is(stage: Stage) -> None:
    await stage.apply(service())
    await stage.deployment_reports(FIRST, 0)
    await stage.autoscaler_reports(FIRST, condition("False", "NoTraffic"), initialized=False, scale=0)
    never = "Initial scale was never achieved"
    await stage.reports(REVISION, FIRST, "False", "ProgressDeadlineExceeded", never, type="ResourcesAvailable")
    failed = f'Revision "{FIRST}" failed with message: {never}.'
    await stage.reports(SERVICE, "magika", "False", "RevisionFailed", failed, type="ConfigurationsReady")
    await stage.autoscaler_reports(FIRST, condition("False", "NoTraffic"), scale=0)
    await stage.reports(REVISION, FIRST, "True")


async def test_a_deployment_without_progress_fails_the_revision(stage: Stage) -> None:
    await stage.apply(service())
    message = f'ReplicaSet "{FIRST}-deployment-1" has timed out progressing.'
    late = conditions(Progressing=condition("False", "ProgressDeadlineExceeded", message))
    await stage.deployment_reports(FIRST, 0, conditions=late)
    await stage.reports(REVISION, FIRST, "False", "ProgressDeadlineExceeded", message)


async def test_a_container_that_ended_without_a_word_says_so(stage: Stage) -> None:
    await stage.apply(service())
    await stage.container_ends(FIRST, 0, "")
    await stage.reports(REVISION, FIRST, "False", "ExitCode0", "Container failed with: container exited with no error")


async def test_a_pod_that_cannot_be_scheduled_is_told(stage: Stage) -> None:
    await stage.apply(service())
    unscheduled = conditions(PodScheduled=condition("False", "Unschedulable", "1 Insufficient nvidia.com/gpu."))
    await stage.pod_reports(FIRST, {"phase": "Pending", "conditions": unscheduled})
    await stage.reports(REVISION, FIRST, "False", "Unschedulable", "1 Insufficient nvidia.com/gpu.")


async def test_a_container_that_comes_up_after_all_heals_the_revision(stage: Stage) -> None:
    await stage.apply(service())
    await stage.container_ends(FIRST, 1, "too early")
    await stage.reports(REVISION, FIRST, "False", "ExitCode1", "Container failed with: too early")
    await stage.becomes(POD_AUTOSCALER, FIRST, lambda found: found["spec"].get("reachability") == "Unreachable")
    await stage.serves()
    await stage.becomes(POD_AUTOSCALER, FIRST, lambda found: found["spec"].get("reachability") == "Reachable")


async def test_the_replicas_belong_to_the_autoscaler(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.cluster.scale(DEPLOYMENT, f"{FIRST}-deployment", "default", 3, manager="autoscaler")
    await stage.deployment_reports(FIRST, 3, replicas=3)
    await stage.quiet()
    assert (await stage.get(DEPLOYMENT, f"{FIRST}-deployment"))["spec"]["replicas"] == 3


async def test_the_autoscaler_gets_class_target_and_limits(stage: Stage) -> None:
    await stage.apply(service())
    autoscaler = await stage.appears(POD_AUTOSCALER, FIRST)
    assert annotations_of(autoscaler)["autoscaling.knative.dev/class"] == CLASS
    assert annotations_of(autoscaler)["autoscaling.knative.dev/metric"] == ""  # as Knative's webhook writes it
    assert autoscaler["spec"] == {
        "containerConcurrency": 0,
        "protocolType": "http1",
        "reachability": "Reachable",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{FIRST}-deployment"},
    }


async def test_a_foreign_annotation_on_the_autoscaler_stays_and_one_of_knative_goes(stage: Stage) -> None:
    await stage.apply(service())
    await stage.appears(POD_AUTOSCALER, FIRST)
    written = {"autoscaling.knodel.dev/policy": "{}", "autoscaling.knative.dev/max-scale": "9"}
    patch = {"metadata": {"annotations": written}}
    await stage.cluster.patch(POD_AUTOSCALER, FIRST, patch, "default", manager="somebody")
    await stage.becomes(
        POD_AUTOSCALER, FIRST, lambda found: "autoscaling.knative.dev/max-scale" not in annotations_of(found)
    )
    assert annotations_of(await stage.get(POD_AUTOSCALER, FIRST))["autoscaling.knodel.dev/policy"] == "{}"


async def test_a_deployment_of_somebody_else_is_not_touched(stage: Stage) -> None:
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{FIRST}-deployment", "namespace": "default"},
        "spec": {"replicas": 1},
    }
    await stage.cluster.create(DEPLOYMENT, foreign, manager="somebody")
    await stage.apply(service())
    message = f'There is an existing Deployment "{FIRST}-deployment" that we do not own.'
    await stage.reports(REVISION, FIRST, "False", "NotOwned", message)


@pytest.mark.parametrize(("failure", "status"), [("True", "False"), ("False", "True"), ("Unknown", "Unknown")], ids=str)
def test_a_replica_failure_is_turned_round(failure: str, status: str) -> None:
    reported = conditions(Progressing=condition("True"), ReplicaFailure=condition(failure, "FailedCreate", "no room"))
    found = RevisionStatus(revision_with())
    found.propagate_deployment_status({"status": {"conditions": reported}})
    available = found.conditions.get("ResourcesAvailable") or {}
    assert available["status"] == status


async def test_active_informs_only(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    active = condition_of(await stage.get(REVISION, FIRST), "Active") or {}
    assert active["severity"] == "Info"

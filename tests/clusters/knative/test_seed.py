"""A Configuration with initial scale 0 and without a Route, like the seed of a warm pool, is ready without replicas."""

from __future__ import annotations

from clusters.base.objects import CONFIGURATION, DEPLOYMENT, POD_AUTOSCALER, REVISION, Object, labels_of
from tests.clusters.knative.stage import Stage, condition, configuration, template
from tests.support.knative_webhook.validation import PLATFORM_FEATURES, VALIDATORS, validators

POOL = "autoscaling.knodel.dev/pool-seed"
FIRST = "knodel-pool-small-00001"
IDLE = condition("False", "NoTraffic", "The target is not receiving traffic.")


def seed() -> Object:
    """The seed of WarmPool `small`."""
    made = configuration("knodel-pool-small")
    made["spec"]["template"] = template(**{"autoscaling.knative.dev/initial-scale": "0"})
    made["spec"]["template"]["metadata"]["labels"][POOL] = "small"
    return made


async def test_it_is_ready_without_a_replica_once_its_scale_target_is_initialized(stage: Stage) -> None:
    await stage.apply(seed())
    deployment = await stage.appears(DEPLOYMENT, f"{FIRST}-deployment")
    assert deployment["spec"]["replicas"] == 0
    assert labels_of(deployment)[POOL] == "small"
    autoscaler = await stage.appears(POD_AUTOSCALER, FIRST)
    assert "reachability" not in autoscaler["spec"]  # Unknown, as Knative says while no Route was seen
    assert labels_of(autoscaler)[POOL] == "small"

    await stage.autoscaler_reports(FIRST, IDLE, scale=0)

    await stage.reports(REVISION, FIRST, "True")
    await stage.reports(REVISION, FIRST, "False", IDLE["reason"], IDLE["message"], type="Active")
    found = await stage.reports(CONFIGURATION, "knodel-pool-small", "True")
    assert found["status"]["latestReadyRevisionName"] == FIRST


async def test_the_order_of_the_autoscalers_status_matters(stage: Stage) -> None:
    """Ready False with a service name before the scale target is initialized: the initial scale was never achieved."""
    await stage.apply(seed())
    await stage.autoscaler_reports(FIRST, IDLE, initialized=False, scale=0)
    await stage.reports(
        REVISION, FIRST, "False", "ProgressDeadlineExceeded", "Initial scale was never achieved",
        type="ResourcesAvailable",
    )  # fmt: skip
    await stage.autoscaler_reports(FIRST, IDLE, scale=0)
    await stage.reports(REVISION, FIRST, "True")


async def test_a_changed_template_makes_a_second_revision(stage: Stage) -> None:
    await stage.apply(seed())
    await stage.autoscaler_reports(FIRST, IDLE, scale=0)
    await stage.reports(CONFIGURATION, "knodel-pool-small", "True")
    changed = seed()
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "dev.local/server:2"

    await stage.apply(changed)

    second = "knodel-pool-small-00002"
    await stage.autoscaler_reports(second, IDLE, scale=0)
    found = await stage.reports(CONFIGURATION, "knodel-pool-small", "True")
    assert found["status"]["latestReadyRevisionName"] == second
    generations = [
        labels_of(await stage.get(DEPLOYMENT, f"{name}-deployment"))["serving.knative.dev/configurationGeneration"]
        for name in (FIRST, second)
    ]
    assert generations == ["1", "2"]


def test_it_is_refused_where_the_flag_is_off_as_knative_is_shipped() -> None:
    (fault,) = VALIDATORS[CONFIGURATION](None, seed())
    assert "allow-zero-initial-scale" in str(fault)
    assert list(validators(PLATFORM_FEATURES)[CONFIGURATION](None, seed())) == []

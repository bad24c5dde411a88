"""From a Service to its traffic and back: all conditions are those of Knative."""

from __future__ import annotations

from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    REVISION,
    ROUTE,
    SERVICE,
    condition_of,
    labels_of,
    owner_reference,
    uid_of,
)
from tests.clusters.knative.stage import WAITING, Stage, configuration, route, service, splits, until

WAITS = 'Configuration "magika" is waiting for a Revision to become ready.'


async def test_a_new_service_waits_for_its_first_revision(stage: Stage) -> None:
    await stage.apply(service())
    await stage.reports(SERVICE, "magika", WAITING, "RevisionMissing", WAITS)
    await stage.reports(SERVICE, "magika", WAITING, type="ConfigurationsReady")
    await stage.reports(ROUTE, "magika", WAITING, "RevisionMissing", WAITS)
    await stage.reports(CONFIGURATION, "magika", WAITING)
    await stage.reports(REVISION, "magika-00001", WAITING, "Deploying")
    assert await stage.find(INGRESS, "magika") is None


async def test_a_service_is_ready_when_its_revision_and_its_ingress_are(stage: Stage) -> None:
    await stage.apply(service())
    await stage.revision_comes_up("magika-00001")
    await stage.reports(CONFIGURATION, "magika", "True")
    uninitialised = "Ingress has not yet been reconciled."
    await stage.reports(SERVICE, "magika", WAITING, "IngressNotConfigured", uninitialised)
    await stage.ingress_is_ready("magika")
    status = (await stage.reports(SERVICE, "magika", "True"))["status"]
    assert status["url"] == "http://magika.default.localhost:8080"
    assert status["address"] == {"url": "http://magika.default.svc.cluster.local"}
    assert status["latestCreatedRevisionName"] == status["latestReadyRevisionName"] == "magika-00001"
    assert status["traffic"] == [{"latestRevision": True, "percent": 100, "revisionName": "magika-00001"}]


async def test_a_route_says_that_tls_is_not_enabled(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    found = condition_of(await stage.get(ROUTE, "magika"), "CertificateProvisioned")
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "TLSNotEnabled")
    assert found["message"] == "external-domain-tls is not enabled"


async def test_children_carry_the_labels_by_which_others_find_them(stage: Stage) -> None:
    await stage.apply(service())
    made = await stage.appears(SERVICE, "magika")
    config = await stage.appears(CONFIGURATION, "magika")
    revision = await stage.appears(REVISION, "magika-00001")
    deployment = await stage.appears(DEPLOYMENT, "magika-00001-deployment")
    assert labels_of(config)["serving.knative.dev/serviceUID"] == uid_of(made)
    wanted = {
        "serving.knative.dev/service": "magika",
        "serving.knative.dev/configuration": "magika",
        "serving.knative.dev/configurationGeneration": "1",
        "serving.knative.dev/revision": "magika-00001",
        "serving.knative.dev/revisionUID": uid_of(revision),
        "knodel.dev/generation": "1",
        "app": "magika-00001",
    }
    pod_labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert wanted.items() <= pod_labels.items()
    assert "serving.knative.dev/routingState" not in pod_labels
    assert deployment["spec"]["selector"] == {"matchLabels": {"serving.knative.dev/revisionUID": uid_of(revision)}}


async def test_a_new_version_takes_over_when_it_is_ready(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.apply(service(version="2"))
    await stage.reports(SERVICE, "magika", WAITING, type="ConfigurationsReady")
    await stage.quiet()
    ingress = await stage.get(INGRESS, "magika")
    assert splits(ingress, "magika.default.localhost") == {"magika-00001": 100}
    await stage.serves(number=2)


async def test_a_version_that_fails_leaves_the_old_traffic_untouched(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    before = await stage.get(INGRESS, "magika")
    await stage.apply(service(version="2"))
    await stage.container_ends("magika-00002", 1, "digest differs: remove the file")
    reason = "Container failed with: digest differs: remove the file"
    await stage.reports(REVISION, "magika-00002", "False", "ExitCode1", reason)
    failed = f'Revision "magika-00002" failed with message: {reason}.'
    await stage.reports(CONFIGURATION, "magika", "False", "RevisionFailed", failed)
    ready = await stage.reports(SERVICE, "magika", "False", "RevisionFailed", failed)
    assert ready["status"]["latestReadyRevisionName"] == "magika-00001"
    assert ready["status"]["traffic"][0]["revisionName"] == "magika-00001"
    await stage.quiet()
    assert await stage.get(INGRESS, "magika") == before
    await stage.reports(ROUTE, "magika", "True")


async def test_a_first_version_that_fails_fails_the_route_too(stage: Stage) -> None:
    await stage.apply(service())
    await stage.container_ends("magika-00001", 1, "no such file")
    missing = 'Configuration "magika" does not have any ready Revision.'
    await stage.reports(ROUTE, "magika", "False", "RevisionMissing", missing)
    await stage.reports(SERVICE, "magika", "False", "RevisionMissing", missing, type="RoutesReady")


async def test_traffic_is_split_by_hand_with_tags(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.apply(service(version="2"))
    await stage.serves(number=2)
    traffic = [
        {"revisionName": "magika-00001", "percent": 90, "tag": "stable"},
        {"latestRevision": True, "percent": 10, "tag": "candidate"},
    ]
    await stage.apply(service(version="2", traffic=traffic))
    host = "magika.default.localhost"
    wanted = {"magika-00001": 90, "magika-00002": 10}
    ingress = await stage.becomes(INGRESS, "magika", lambda found: splits(found, host) == wanted)
    assert splits(ingress, "stable-magika.default.localhost") == {"magika-00001": 100}
    assert splits(ingress, host, tag="candidate") == {"magika-00002": 100}
    await stage.reports(SERVICE, "magika", WAITING, "IngressNotConfigured", "Ingress has not yet been reconciled.")
    await stage.ingress_is_ready("magika")
    ready = await stage.reports(SERVICE, "magika", "True")
    assert ready["status"]["traffic"] == [
        {
            "latestRevision": False,
            "percent": 90,
            "revisionName": "magika-00001",
            "tag": "stable",
            "url": "http://stable-magika.default.localhost:8080",
        },
        {
            "latestRevision": True,
            "percent": 10,
            "revisionName": "magika-00002",
            "tag": "candidate",
            "url": "http://candidate-magika.default.localhost:8080",
        },
    ]


async def test_traffic_to_a_revision_that_is_not_there_changes_nothing(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    before = await stage.get(INGRESS, "magika")
    await stage.apply(service(traffic=[{"revisionName": "magika-00009", "percent": 100}]))
    message = 'Revision "magika-00009" referenced in traffic not found.'
    await stage.reports(SERVICE, "magika", "False", "RevisionMissing", message)
    assert await stage.get(INGRESS, "magika") == before


async def test_a_configuration_of_somebody_else_is_not_touched(stage: Stage) -> None:
    await stage.apply(configuration("magika"))
    await stage.apply(service())
    message = 'There is an existing Configuration "magika" that we do not own.'
    await stage.reports(SERVICE, "magika", "False", "NotOwned", message)


async def test_a_route_of_somebody_else_is_not_touched(stage: Stage) -> None:
    await stage.apply(route("magika", [{"configurationName": "other", "percent": 100}]))
    await stage.apply(service())
    message = 'There is an existing Route "magika" that we do not own.'
    await stage.reports(SERVICE, "magika", "False", "NotOwned", message)


async def test_what_somebody_writes_on_a_child_is_written_over(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"traffic": [{"revisionName": "magika-00001", "percent": 100}]},
    }
    await stage.cluster.patch(ROUTE, "magika", patch, "default", manager="somebody")

    def clean(found: dict[str, object]) -> bool:
        return "a" not in labels_of(found) and found["spec"] == {
            "traffic": [{"configurationName": "magika", "latestRevision": True, "percent": 100}]
        }

    await stage.becomes(ROUTE, "magika", clean)


async def test_a_service_deleted_takes_everything_with_it(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.apply(service(version="2"))
    await stage.serves(number=2)
    await stage.cluster.delete(SERVICE, "magika", "default")

    async def gone() -> bool:
        return not await stage.versions()

    await until(gone)
    await stage.quiet()
    assert not await stage.versions()


async def test_a_service_taken_off_its_children_and_put_back_keeps_them(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    away = {"metadata": {"labels": {"serving.knative.dev/service": None}, "ownerReferences": None}}
    for kind in (CONFIGURATION, ROUTE):
        await stage.cluster.patch(kind, "magika", away, "default", manager="knodel")
    message = 'There is an existing Configuration "magika" that we do not own.'
    await stage.reports(SERVICE, "magika", "False", "NotOwned", message, type="ConfigurationsReady")
    await stage.cluster.delete(SERVICE, "magika", "default")
    await stage.quiet()
    children = ((CONFIGURATION, "magika"), (ROUTE, "magika"), (REVISION, "magika-00001"))
    for kind, name in children:
        await stage.reports(kind, name, "True")
    back = await stage.apply(service())
    await stage.reports(SERVICE, "magika", "False", "NotOwned", message)
    labels = {"serving.knative.dev/service": "magika"}
    owned = {"metadata": {"labels": labels, "ownerReferences": [owner_reference(SERVICE, back)]}}
    for kind in (CONFIGURATION, ROUTE):
        await stage.cluster.patch(kind, "magika", owned, "default", manager="knodel")
    await stage.quiet()
    for kind, name in (*children, (SERVICE, "magika")):
        await stage.reports(kind, name, "True")
    assert len((await stage.cluster.list(REVISION)).items) == 1

"""Routes without a Service, the labels of their Revisions, and visibility."""

from __future__ import annotations

from collections.abc import Callable

from clusters.base.objects import (
    CONFIGURATION,
    INGRESS,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Object,
    annotations_of,
    labels_of,
)
from tests.clusters.knative.stage import WAITING, Stage, condition, configuration, route, service, splits

ROUTES = "serving.knative.dev/routes"
STATE = "serving.knative.dev/routingState"


def marked(state: str, routes: str) -> Callable[[Object], bool]:
    """Return a check for these marks of an object."""

    def check(found: Object) -> bool:
        return labels_of(found).get(STATE) == state and annotations_of(found).get(ROUTES, "") == routes

    return check


async def test_two_variants_share_one_route(stage: Stage) -> None:
    await stage.apply(configuration("magika-cpu"))
    await stage.apply(configuration("magika-gpu"))
    targets = [
        {"configurationName": "magika-cpu", "latestRevision": True, "percent": 60},
        {"configurationName": "magika-gpu", "latestRevision": True, "percent": 40},
    ]
    await stage.apply(route("magika", targets))
    message = 'Configuration "magika-cpu" is waiting for a Revision to become ready.'
    await stage.revision_comes_up("magika-gpu-00001")
    await stage.reports(ROUTE, "magika", WAITING, "RevisionMissing", message)
    await stage.revision_comes_up("magika-cpu-00001")
    wanted = {"magika-cpu-00001": 60, "magika-gpu-00001": 40}
    await stage.becomes(INGRESS, "magika", lambda found: splits(found, "magika.default.localhost") == wanted)
    await stage.ingress_is_ready("magika")
    await stage.reports(ROUTE, "magika", "True")
    for variant in ("cpu", "gpu"):
        await stage.becomes(REVISION, f"magika-{variant}-00001", marked("active", "magika"))
        await stage.becomes(CONFIGURATION, f"magika-{variant}", lambda found: annotations_of(found)[ROUTES] == "magika")


async def test_a_revision_that_no_route_reaches_is_pending_and_its_reachability_unknown(stage: Stage) -> None:
    await stage.apply(configuration("seed"))
    await stage.becomes(REVISION, "seed-00001", marked("pending", ""))
    autoscaler = await stage.appears(POD_AUTOSCALER, "seed-00001")
    assert "reachability" not in autoscaler["spec"]


async def test_a_revision_routed_away_goes_to_the_reserve_when_the_route_is_settled(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.apply(service(version="2"))
    await stage.becomes(REVISION, "magika-00002", marked("active", "magika"))
    await stage.revision_comes_up("magika-00002")
    await stage.quiet()
    await stage.becomes(REVISION, "magika-00001", marked("active", "magika"))
    await stage.ingress_is_ready("magika")
    await stage.becomes(REVISION, "magika-00001", marked("reserve", ""))
    await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda found: found["spec"]["reachability"] == "Unreachable")


async def test_a_tag_at_no_percent_keeps_a_revision_active(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    traffic = [{"latestRevision": True, "percent": 100}, {"revisionName": "magika-00001", "tag": "old"}]
    await stage.apply(service(version="2", traffic=traffic))
    await stage.revision_comes_up("magika-00002")
    wanted = {"magika-00002": 100}
    ingress = await stage.becomes(INGRESS, "magika", lambda found: splits(found, "magika.default.localhost") == wanted)
    assert splits(ingress, "old-magika.default.localhost") == {"magika-00001": 100}
    await stage.ingress_is_ready("magika")
    await stage.reports(SERVICE, "magika", "True")
    await stage.becomes(REVISION, "magika-00001", marked("active", "magika"))


async def test_a_revision_at_zero_can_be_routed(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.autoscaler_reports("magika-00001", condition("False", "NoTraffic"), scale=0)
    await stage.apply(service(traffic=[{"revisionName": "magika-00001", "percent": 100}]))
    await stage.ingress_is_ready("magika")
    found = await stage.reports(SERVICE, "magika", "True")
    assert found["status"]["traffic"] == [{"latestRevision": False, "percent": 100, "revisionName": "magika-00001"}]


async def test_a_services_route_leads_to_its_own_revisions_only(stage: Stage) -> None:
    await stage.apply(service("other"))
    await stage.serves("other")
    await stage.apply(service(traffic=[{"revisionName": "other-00001", "percent": 100}]))
    message = 'Revision "other-00001" belongs to Service "other", not Service "magika".'
    await stage.reports(ROUTE, "magika", "False", "RevisionNotOwned", message)


async def test_a_target_that_is_not_there_is_found_when_it_comes(stage: Stage) -> None:
    await stage.apply(route("magika", [{"configurationName": "later", "latestRevision": True, "percent": 100}]))
    message = 'Configuration "later" referenced in traffic not found.'
    await stage.reports(ROUTE, "magika", "False", "ConfigurationMissing", message)
    await stage.apply(configuration("later"))
    await stage.revision_comes_up("later-00001")
    await stage.ingress_is_ready("magika")
    await stage.reports(ROUTE, "magika", "True")


async def test_a_route_deleted_takes_its_marks_with_it(stage: Stage) -> None:
    await stage.apply(configuration("magika"))
    await stage.apply(route("front", [{"configurationName": "magika", "latestRevision": True, "percent": 100}]))
    await stage.revision_comes_up("magika-00001")
    await stage.becomes(REVISION, "magika-00001", marked("active", "front"))
    await stage.cluster.delete(ROUTE, "front", "default")
    await stage.becomes(REVISION, "magika-00001", marked("reserve", ""))
    await stage.becomes(CONFIGURATION, "magika", lambda found: ROUTES not in annotations_of(found))


async def test_a_cluster_local_route_has_no_public_host(stage: Stage) -> None:
    local = service()
    local["metadata"]["labels"] = {"networking.knative.dev/visibility": "cluster-local"}
    await stage.apply(local)
    await stage.revision_comes_up("magika-00001")
    ingress = await stage.appears(INGRESS, "magika")
    assert [rule["visibility"] for rule in ingress["spec"]["rules"]] == ["ClusterLocal"]
    hosts = ["magika.default", "magika.default.svc", "magika.default.svc.cluster.local"]
    assert ingress["spec"]["rules"][0]["hosts"] == hosts
    found = await stage.becomes(SERVICE, "magika", lambda found: "url" in found.get("status", {}))
    assert found["status"]["url"] == "http://magika.default.svc.cluster.local"


async def test_a_split_names_the_revision_in_internal_headers(stage: Stage) -> None:
    await stage.apply(service())
    await stage.revision_comes_up("magika-00001")
    ingress = await stage.appears(INGRESS, "magika")
    public = next(rule for rule in ingress["spec"]["rules"] if rule["visibility"] == "ExternalIP")
    assert public["http"]["paths"] == [
        {
            "appendHeaders": {"Knative-Serving-Default-Route": "true"},
            "splits": [
                {
                    "appendHeaders": {
                        "Knative-Serving-Namespace": "default",
                        "Knative-Serving-Revision": "magika-00001",
                    },
                    "percent": 100,
                    "serviceName": "magika-00001",
                    "serviceNamespace": "default",
                    "servicePort": 80,
                }
            ],
        }
    ]


async def test_an_ingress_that_reports_an_older_generation_says_nothing(stage: Stage) -> None:
    await stage.apply(service())
    await stage.serves()
    await stage.apply(service(traffic=[{"latestRevision": True, "percent": 100, "tag": "now"}]))
    not_yet = "Ingress has not yet been reconciled."
    await stage.reports(SERVICE, "magika", WAITING, "IngressNotConfigured", not_yet)
    await stage.quiet()
    await stage.reports(ROUTE, "magika", WAITING, "IngressNotConfigured", not_yet)

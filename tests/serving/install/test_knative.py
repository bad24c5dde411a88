"""What an installation finds out of Knative."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, version_of
from clusters.embedded.cluster import EmbeddedCluster
from serving.install.knative import (
    NEEDED,
    KnativeMissing,
    address_of,
    domain_of,
    find_ingress,
    flags_off,
    port_of,
    require_knative,
    switch_on,
)
from serving.makers.knative_flags import ACTIVATOR_METRICS, TAG_HEADER, VOLUME_CLAIMS, ZERO_INITIAL_SCALE
from tests.serving.install.conftest import Knative


async def test_a_cluster_without_knative_is_told_what_to_do(cluster: EmbeddedCluster) -> None:
    with pytest.raises(KnativeMissing, match=r"no Knative Serving: install version"):
        await require_knative(cluster)


async def test_an_old_knative_is_told_what_it_lacks(cluster: EmbeddedCluster) -> None:
    await Knative(cluster).come(NEEDED[:-1])
    with pytest.raises(KnativeMissing, match=rf"lacks {NEEDED[-1].resource}"):
        await require_knative(cluster)


async def test_flags_that_are_off_are_found_and_switched_on(cluster: EmbeddedCluster, knative: Knative) -> None:
    off = await flags_off(cluster)
    assert off == [TAG_HEADER, ACTIVATOR_METRICS, ZERO_INITIAL_SCALE, VOLUME_CLAIMS]
    assert await switch_on(cluster, off, dry_run=True) == off
    assert await flags_off(cluster) == off
    assert await switch_on(cluster, off) == off
    assert await flags_off(cluster) == []
    features = await cluster.get(CONFIG_MAP, "config-features", "knative-serving")
    assert features["data"] == {"tag-header-based-routing": "enabled", VOLUME_CLAIMS.key: "enabled"}


async def test_the_activators_are_restarted_once_since_they_read_their_setting_only_when_they_start(
    cluster: EmbeddedCluster, knative: Knative
) -> None:
    await knative.put(DEPLOYMENT, "knative-serving", "activator", spec={"template": {"metadata": {}}})
    await switch_on(cluster, await flags_off(cluster))
    restarted = await cluster.get(DEPLOYMENT, "activator", "knative-serving")
    assert "kubectl.kubernetes.io/restartedAt" in restarted["spec"]["template"]["metadata"]["annotations"]

    assert await switch_on(cluster, await flags_off(cluster)) == []
    again = await cluster.get(DEPLOYMENT, "activator", "knative-serving")
    assert version_of(again) == version_of(restarted)


async def test_metrics_that_are_sent_elsewhere_stay_as_they_are(cluster: EmbeddedCluster, knative: Knative) -> None:
    await knative.configure("config-observability", {"metrics-protocol": "grpc", "metrics-endpoint": "otel:4317"})
    done = await switch_on(cluster, await flags_off(cluster))
    assert ACTIVATOR_METRICS not in done
    found = await cluster.get(CONFIG_MAP, "config-observability", "knative-serving")
    assert found["data"]["metrics-protocol"] == "grpc"


@pytest.mark.parametrize(
    ("data", "domain"),
    [
        ({}, "svc.cluster.local"),
        ({"_example": "x"}, "svc.cluster.local"),
        ({"a.org": "selector:\n  app: x\n", "b.org": ""}, "b.org"),
    ],
)
def test_the_domain_is_the_one_without_a_selector(data: dict[str, str], domain: str) -> None:
    assert domain_of(data) == domain


@pytest.mark.parametrize(
    ("service", "address", "note"),
    [
        ({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, "spec": {"clusterIP": "9.9"}}, "1.2.3.4", ""),
        ({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}}}, "lb.example.org", ""),
        ({"status": {"loadBalancer": {}}, "spec": {"externalIPs": ["5.6.7.8"]}}, "5.6.7.8", ""),
        ({"spec": {"clusterIP": "10.0.0.1"}}, "10.0.0.1", "inside the cluster"),
        ({"spec": {"clusterIP": "None"}}, "", "no address"),
    ],
)  # fmt: skip
def test_the_address_is_the_outermost_one(service: dict[str, Any], address: str, note: str) -> None:
    found, words = address_of(service)
    assert found == address
    assert note in words


def test_the_port_is_the_one_for_plain_http() -> None:
    ports = [{"name": "https", "port": 443}, {"name": "http2", "port": 8080}]
    assert port_of({"spec": {"ports": ports}}) == 8080
    assert port_of({"spec": {"ports": [{"port": 81}]}}) == 81
    assert port_of({}) == 80


async def test_an_ingress_that_nobody_knows_is_left_to_people(cluster: EmbeddedCluster, knative: Knative) -> None:
    await knative.configure("config-network", {"ingress-class": "gateway-api.ingress.networking.knative.dev"})
    ingress = await find_ingress(cluster)
    assert (ingress.address, ingress.port, ingress.domain) == ("", 0, "knodel.test")
    assert "gateway.address" in ingress.notes[0]


async def test_an_ingress_that_is_not_there_is_named(cluster: EmbeddedCluster, knative: Knative) -> None:
    await knative.configure("config-network", {})
    assert "istio-system/istio-ingressgateway does not exist" in (await find_ingress(cluster)).notes[0]

"""Knative's flags in its ConfigMaps, and a Model that needs a flag that is off."""

from __future__ import annotations

from clusters.base.errors import Forbidden
from clusters.base.objects import CONFIG_MAP, Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.manager.fence import FencedCluster
from serving.makers.knative_flags import (
    ACTIVATOR_METRICS,
    EMPTY_DIR,
    FLAGS,
    TAG_HEADER,
    VOLUME_CLAIMS,
    ZERO_INITIAL_SCALE,
)
from serving.reconciler.flags import CACHED, AllOn, ConfigMapFlags
from serving.reconciler.preconditions import disabled_flags
from tests.support.clock import SteppedClock


class Nobody:
    """Does not lead."""

    valid = False


class Forbidding(FencedCluster):
    """ConfigMaps may not be read."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Refuse."""
        raise Forbidden(f"{kind} {name} may not be read")


async def write(cluster: EmbeddedCluster, **data: str) -> None:
    """The ConfigMap of features."""
    metadata = {"name": TAG_HEADER.configmap, "namespace": TAG_HEADER.namespace}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    await cluster.apply(CONFIG_MAP, obj, manager="administrator", force=True)


async def test_what_stands_in_the_configmap_decides_and_is_remembered_for_a_while(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    flags = ConfigMapFlags(cluster, clock)
    await write(cluster, **{EMPTY_DIR.key: "disabled"})
    assert await flags.missing((TAG_HEADER, EMPTY_DIR)) == (TAG_HEADER, EMPTY_DIR)

    await write(cluster, **{TAG_HEADER.key: "enabled"})
    assert await flags.missing((TAG_HEADER,)) == (TAG_HEADER,)
    clock.step(CACHED)

    assert await flags.missing((TAG_HEADER, EMPTY_DIR)) == ()


async def test_without_the_configmap_knatives_defaults_hold(cluster: EmbeddedCluster) -> None:
    off = (TAG_HEADER, ACTIVATOR_METRICS, ZERO_INITIAL_SCALE, VOLUME_CLAIMS)
    assert await ConfigMapFlags(cluster, SteppedClock()).missing(FLAGS) == off
    assert await AllOn().missing(FLAGS) == ()


async def test_what_may_not_be_read_is_left_to_knatives_webhook(cluster: EmbeddedCluster) -> None:
    forbidding = Forbidding(cluster, Nobody())
    assert await ConfigMapFlags(forbidding, SteppedClock()).missing(FLAGS) == ()


def test_a_missing_flag_is_told_with_feature_key_and_place() -> None:
    obstacle = disabled_flags((TAG_HEADER,))

    assert obstacle is not None
    assert obstacle.reason == "KnativeFeatureDisabled"
    for word in ("tags", "tag-header-based-routing", '"enabled"', "config-features", "knative-serving"):
        assert word in obstacle.message
    assert disabled_flags(()) is None

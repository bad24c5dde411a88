"""What the router knows of Models."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from clusters.base.objects import MODEL
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from serving.router.models import MARGIN, KnownModels
from serving.types.model import ModelSpec
from tests.serving.router.stage import model
from tests.support.loops import at_work


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [({"timeout": "10m"}, 600.0), ({}, 300.0), ({"timeout": "soon"}, 300.0), ({"timeout": 5}, 300.0)],
)
async def test_a_request_may_wait_and_be_served_for_the_models_timeout_each(
    cluster: EmbeddedCluster, spec: dict[str, Any], seconds: float
) -> None:
    await cluster.create(MODEL, model("m", modelFormat="gguf", **spec), manager="test")
    informer = Informer(cluster, MODEL)
    async with at_work(informer.run()):
        await informer.synced()
        known = KnownModels(informer)
        default = signature(ModelSpec).parameters["timeout"].default
        assert known.timeout("default", "m") == 2 * seconds + MARGIN
        assert known.timeout("default", "nope") == 2 * default + MARGIN

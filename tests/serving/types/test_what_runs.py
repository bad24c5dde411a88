"""The arguments and environment of replicas, as the server reads them: formats, stores, credentials, batches."""

from __future__ import annotations

from typing import Any

import pytest

from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.options import parse_options
from serving.storage.sources.source import SourceContext, source_for
from serving.storage.transfer.credentials import Credentials
from serving.types.model import Batching as ModelBatching
from serving.types.validation import read_model, validate_model
from tests.manifests.bad_models import GOOD_STORES
from tests.serving.models import model_object
from tests.serving.storage.conftest import downloader


def faults(**spec: Any) -> dict[str, str]:
    return {error.path: error.message for error in validate_model(None, model_object(**spec))}


def test_batches_have_defaults_and_are_absent_by_default() -> None:
    assert read_model(model_object(batching={})).spec.batching == ModelBatching(16, 0.002)
    spec = read_model(model_object()).spec
    assert (spec.secret, spec.runtime, spec.batching) == ("", "", None)


def test_a_server_that_is_told_nothing_does_what_a_model_means_that_says_nothing() -> None:
    given = parse_options(["--name", "m", "--storage-uri", "file:///m"], {})
    bounds = given.bounds
    spec = read_model(model_object()).spec
    assert (bounds.timeout, bounds.cpu) == (spec.timeout, float(spec.resources.cpu))
    assert float(bounds.slots) == spec.scaling.scale_target
    assert (given.queue, given.load_timeout) == (spec.scaling.hold_queue, spec.startup_deadline)
    assert BatchBounds(16).max_latency == ModelBatching().max_latency


@pytest.mark.parametrize("uri", [uri for uri in GOOD_STORES if not uri.startswith("pvc:")])
def test_the_uris_of_stores_that_are_taken_are_those_that_the_server_reads(uri: str) -> None:
    assert faults(storageUri=uri) == {}
    assert source_for(uri, None, SourceContext(downloader(), Credentials({})))


def test_containers_of_ones_own_come_later() -> None:
    assert faults(runtime={"name": "a", "image": "i:1"}) == {
        "spec.runtime.image": "not supported yet: custom containers; use name"
    }

"""Two doors, one judgement: what the Python door refuses the API server refuses too, and takes what it takes.

Needs the definitions and policies of `manifests/base` on the cluster; every write is a dry run.
"""

from __future__ import annotations

import re

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import EVENT_SOURCE, MODEL, Object
from serving.types.event_source import validate_event_source
from serving.types.settings.settings import Settings
from serving.types.validation import validate_model
from tests.manifests.bad_models import (
    BAD_MODELS,
    GOOD_MODELS,
    ONLY_KUBERNETES_REFUSES,
    ONLY_PYTHON_REFUSES,
    BadModel,
)

MANAGER = "tests"


async def refusal(cluster: Cluster, obj: Object, namespace: str) -> tuple[FieldError, ...]:
    """What the API server has against the Model."""
    placed = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    try:
        await cluster.create(MODEL, placed, manager=MANAGER, dry_run=True)
    except Invalid as error:
        return error.causes
    return ()


@pytest.fixture(autouse=True)
def _needed(installed: Settings) -> None:
    """Knodel is on the cluster."""


@pytest.mark.parametrize("bad", BAD_MODELS, ids=str)
async def test_what_is_bad_is_refused_by_both(cluster: Cluster, bad: BadModel) -> None:
    mine = {error.path: error.message for error in validate_model(None, bad.object)}
    assert bad.path in mine
    assert mine[bad.path].startswith(bad.words)

    theirs = await refusal(cluster, bad.object, "default")
    assert theirs, f"the API server takes {bad.object}"
    told = re.sub(r"\[([a-z][^]]*)\]", r".\1", " ".join(map(str, theirs)))  # `engineArgs[seed]`, a key of a mapping
    assert bad.words in told
    # A rule over a list names the list, a missing field its holder or itself.
    assert any(error.path and bad.path.startswith(error.path) for error in theirs) or bad.path in told


@pytest.mark.parametrize("name", GOOD_MODELS)
async def test_what_is_good_is_taken_by_both(cluster: Cluster, name: str) -> None:
    assert list(validate_model(None, GOOD_MODELS[name])) == []
    assert await refusal(cluster, GOOD_MODELS[name], "default") == ()


@pytest.mark.parametrize("name", ONLY_PYTHON_REFUSES)
async def test_what_only_our_own_door_refuses(cluster: Cluster, name: str) -> None:
    assert list(validate_model(None, ONLY_PYTHON_REFUSES[name])) != []
    assert await refusal(cluster, ONLY_PYTHON_REFUSES[name], "default") == ()


@pytest.mark.parametrize("name", ONLY_KUBERNETES_REFUSES)
async def test_what_only_the_api_server_refuses(cluster: Cluster, name: str) -> None:
    assert list(validate_model(None, ONLY_KUBERNETES_REFUSES[name])) == []
    assert await refusal(cluster, ONLY_KUBERNETES_REFUSES[name], "default") != ()


@pytest.mark.parametrize(
    ("namespace", "subject", "is_taken"),
    [
        ("default", "system:serviceaccount:default:training", True),
        ("default", "system:serviceaccount:others:training", False),
        ("default", "system:serviceaccount:", False),
        ("knodel-system", "system:serviceaccount:others:training", True),
        ("default", "repo:acme/models:ref:refs/heads/main", True),
    ],
)
async def test_an_event_source_is_for_service_accounts_of_its_namespace_by_both(
    cluster: Cluster, namespace: str, subject: str, is_taken: bool
) -> None:
    oidc = {"issuer": "https://issuer.example.org", "audience": "knodel", "subject": subject}
    obj = {
        "apiVersion": EVENT_SOURCE.api_version,
        "kind": EVENT_SOURCE.kind,
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": {"source": "/x", "auth": {"oidc": oidc}, "models": ["*"], "storagePrefixes": ["s3://models/"]},
    }
    assert (not validate_event_source(None, obj)) is is_taken
    if is_taken:
        await cluster.create(EVENT_SOURCE, obj, manager=MANAGER, dry_run=True)
    else:
        with pytest.raises(Invalid, match="of the EventSource's own namespace"):
            await cluster.create(EVENT_SOURCE, obj, manager=MANAGER, dry_run=True)

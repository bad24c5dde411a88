"""Formats and stores: other libraries, a private hub, code where it is allowed, a format that the files do not have."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import NAMESPACE, Object, condition_of, is_true
from serving.types.annotations import LABEL_ALLOW_CODE
from tests.scenarios.test_scaling import at_zero
from tests.scenarios.world import MANAGER, SOON, World, reason_of
from tests.support import models
from tests.support.hub import hub

ROWS: Object = {"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [2, 1], "data": [[1.0], [4.0]]}]}
LINE: Object = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [1.0, 4.0]}]}


async def allow_code(world: World, namespace: str, value: str | None) -> None:
    """Label the namespace, as `knodel namespace` does; None removes the label."""
    patch = {"metadata": {"labels": {LABEL_ALLOW_CODE: value}}}
    await world.cluster.patch(NAMESPACE, namespace, patch, manager=MANAGER)


async def test_a_model_of_scikit_learn_is_found_by_its_file_and_answers_in_batches(world: World) -> None:
    world.needs("sklearn")
    batching = {"maxBatchSize": 8, "maxLatency": "1ms"}
    await world.deploy("line", storageUri=world.artifacts("line"), batching=batching, minReplicas=1)

    answer = await world.ask("line", body=ROWS)

    assert answer.status == 200, answer.body
    assert [round(value, 6) for value in answer.body["outputs"][0]["data"]] == [3.0, 9.0]
    assert answer.revision == "line-00001"


async def test_a_private_model_is_fetched_with_the_token_of_its_secret(world: World) -> None:
    with hub(world.address, "s3cret", {"config.json": b"{}", "model.onnx": models.double()}) as endpoint:
        await world.secret("hub", HF_ENDPOINT=endpoint, HF_TOKEN="s3cret")
        await world.deploy(
            "private", storageUri="hf://org/private", storage={"secretRef": {"name": "hub"}}, minReplicas=1
        )

        answer = await world.ask("private", value=21.0)

    assert (answer.status, answer.body["outputs"][0]["data"]) == (200, [42.0])


async def test_code_runs_where_the_namespace_allows_it_and_nowhere_else(world: World) -> None:
    await allow_code(world, world.namespace, "false")
    uri = world.artifacts("code")
    await world.deploy("code", wait=False, storageUri=uri, modelFormat="onnx", minReplicas=1, startupDeadline=SOON)
    wrong = await world.until("code", lambda found: "ONNX" in reason_of(found))

    await allow_code(world, world.namespace, "true")
    served = await world.deploy("code", modelFormat="python", startupDeadline=None)
    answer = await world.ask("code", body=LINE)
    await allow_code(world, world.namespace, "false")
    refused = await world.until("code", lambda found: "CodeNotAllowed" in reason_of(found))
    still = await world.ask("code", body=LINE)
    await allow_code(world, world.namespace, None)

    assert not is_true(wrong, "Ready")
    assert is_true(served, "Ready")
    assert (answer.status, answer.body["outputs"][0]["data"]) == (200, [4.0, 16.0])
    assert LABEL_ALLOW_CODE in (condition_of(refused, "ObjectsApplied") or {})["message"]
    assert still.status == 200


async def test_a_model_of_code_is_claimed_from_a_pool_of_its_format_and_no_other_model_is(world: World) -> None:
    await allow_code(world, world.namespace, "true")
    await world.pool("coded", 1, modelFormat="python")
    limits: dict[str, Any] = {"maxReplicas": 1, "scaleToZeroAfter": "1s"}
    await world.deploy("other", storageUri=world.artifacts("double"), **limits)
    await world.deploy("claimed", storageUri=world.artifacts("code"), modelFormat="python", **limits)
    for name in ("other", "claimed"):
        await at_zero(world, f"{name}-00001")
    await world.pool_has("coded", 1)

    answers = [await world.ask("other"), await world.ask("claimed", body=LINE)]

    assert [answer.status for answer in answers] == [200, 200]
    other = await world.until("other", lambda found: len(starts_of(found)) == 2)
    claimed = await world.until("claimed", lambda found: len(starts_of(found)) == 2)
    assert starts_of(other) == ["cold", "cold"]
    assert starts_of(claimed) == ["cold", "warm"]
    await allow_code(world, world.namespace, None)


def starts_of(found: Object) -> list[str]:
    """How the Model's replicas came, the newest last."""
    return [start["kind"] for start in (found.get("status") or {}).get("starts") or ()]

"""Adapters of a language model: written for replicas without a new version, and kept by former versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoscaler.reconciler.status import ADAPTERS
from autoscaler.types import ADAPTERS_ANNOTATION
from clusters.base.objects import CONFIG_MAP, MODEL, POD_AUTOSCALER, REVISION, Object, condition_of, name_of, uid_of
from serving.engines.base.llm_arguments import ADAPTERS_FILE
from serving.modelserver.base.adapter_list import read_list
from tests.clusters.knative.stage import NAMESPACE
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage

LEGAL = {"name": "legal", "uri": "s3://box/legal"}
TONE = {"name": "tone", "uri": "s3://box/tone", "digest": "sha256:" + "a" * 64}


def vllm(*adapters: Mapping[str, str], **spec: Any) -> Object:
    return model_object(modelFormat="vllm", llm={"adapters": list(adapters)}, **spec)


async def lists(stage: ModelStage, model: Object, *revisions: str) -> dict[str, list[str]]:
    """Return the names of the adapters that replicas of these revisions read."""
    record = await stage.get(CONFIG_MAP, f"knodel-adapters-{uid_of(model)}")
    content = record["data"][ADAPTERS_FILE].encode()
    return {name: [one.name for one in read_list(content, name).adapters] for name in revisions}


async def has_list(stage: ModelStage, revision: str, *adapters: Mapping[str, str]) -> None:
    """Wait until the PodAutoscaler has these adapters, which is written last."""

    def check(obj: Object) -> bool:
        text = (obj["metadata"].get("annotations") or {}).get(ADAPTERS_ANNOTATION, "{}")
        return bool(json.loads(text).get("adapters") == list(adapters))

    await stage.becomes(POD_AUTOSCALER, revision, check)


async def test_another_list_is_written_for_the_replicas_and_makes_no_version(stage: ModelStage) -> None:
    stored = await stage.deploy(vllm(LEGAL))
    revision = await stage.appears(REVISION, "magika-00001")
    mounted = {one["name"]: one.get("configMap") for one in revision["spec"]["volumes"]}
    assert mounted["adapters"] == {"name": f"knodel-adapters-{uid_of(stored)}"}
    record = await stage.get(CONFIG_MAP, f"knodel-adapters-{uid_of(stored)}")
    assert record["metadata"]["ownerReferences"][0]["uid"] == uid_of(stored)
    await has_list(stage, "magika-00001", LEGAL)

    await stage.edit({"spec": {"llm": {"adapters": [LEGAL, TONE]}}})
    await has_list(stage, "magika-00001", LEGAL, TONE)
    assert await lists(stage, stored, "magika-00001") == {"magika-00001": ["legal", "tone"]}
    found = (await stage.cluster.list(REVISION, NAMESPACE)).items
    assert [name_of(one) for one in found] == ["magika-00001"]


async def test_a_deleted_list_is_written_again_while_replicas_lack_it(stage: ModelStage) -> None:
    stored = await stage.deploy(vllm(LEGAL))
    name = f"knodel-adapters-{uid_of(stored)}"
    await has_list(stage, "magika-00001", LEGAL)
    await stage.cluster.delete(CONFIG_MAP, name, NAMESPACE)
    await stage.edit({"metadata": {"labels": {"next": "pass"}}})
    await stage.appears(CONFIG_MAP, name)


async def test_a_former_version_keeps_its_list(stage: ModelStage) -> None:
    stored = await stage.deploy(vllm(LEGAL))
    await has_list(stage, "magika-00001", LEGAL)
    await stage.deploy(vllm(TONE, version="2"))
    await stage.appears(REVISION, "magika-00002")
    both = "magika-00001", "magika-00002"
    assert await lists(stage, stored, *both) == {"magika-00001": ["legal"], "magika-00002": ["tone"]}
    await has_list(stage, "magika-00002", TONE)
    await stage.deploy(vllm(TONE, LEGAL, version="2"))
    await has_list(stage, "magika-00002", TONE, LEGAL)
    assert await lists(stage, stored, *both) == {"magika-00001": ["legal"], "magika-00002": ["tone", "legal"]}


async def test_the_state_of_the_replicas_becomes_a_condition(stage: ModelStage) -> None:
    def says(status: str, reason: str = "", message: str = "") -> Any:
        wanted = {"status": status, "reason": reason, "message": message}
        return lambda obj: wanted.items() <= (condition_of(obj, ADAPTERS) or {}).items()

    async def report(status: str, reason: str, message: str, scale: int = 1) -> None:
        condition = {"type": ADAPTERS, "status": status, "reason": reason, "message": message}
        present = (await stage.get(POD_AUTOSCALER, "magika-00001")).get("status") or {}
        kept = [one for one in present.get("conditions") or () if one["type"] != ADAPTERS]
        patch = {"status": {"conditions": [*kept, condition], "actualScale": scale}}
        await stage.cluster.patch(POD_AUTOSCALER, "magika-00001", patch, NAMESPACE, manager="a", subresource="status")

    await stage.deploy(vllm(LEGAL))
    await stage.appears(POD_AUTOSCALER, "magika-00001")
    none = says("Unknown", "NoReplicas", "replicas load the adapters when they start")
    await stage.becomes(MODEL, "magika", none)
    await report("False", "AdapterFailed", 'adapter "legal": gone')
    await stage.becomes(MODEL, "magika", says("False", "AdapterFailed", 'magika-00001: adapter "legal": gone'))
    await report("True", "", "")
    await stage.becomes(MODEL, "magika", lambda obj: (condition_of(obj, ADAPTERS) or {}).get("status") == "True")
    await report("True", "", "", scale=0)
    await stage.becomes(MODEL, "magika", none)


async def test_a_model_of_another_format_has_no_list(stage: ModelStage) -> None:
    stored = await stage.deploy(model_object(modelFormat="gguf", llm={"adapters": [LEGAL]}))
    await stage.appears(POD_AUTOSCALER, "magika-00001")
    found = await stage.becomes(MODEL, "magika", lambda obj: bool(condition_of(obj, "Ready")))
    assert condition_of(found, ADAPTERS) is None
    assert await stage.find(CONFIG_MAP, f"knodel-adapters-{uid_of(stored)}") is None
    await stage.edit({"spec": {"llm": {"adapters": [LEGAL, TONE]}}})
    await stage.appears(REVISION, "magika-00002")

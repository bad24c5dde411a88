"""Patches of the commands traffic, promote and rollback."""

from __future__ import annotations

from clusters.base.objects import LABEL_CONFIGURATION, REVISION, Object
from serving.reconciler.rollout.commands import promote, rollback, traffic
from tests.serving.reconciler.conftest import ModelStage

NO_GC = "serving.knative.dev/no-gc"


async def revisions(stage: ModelStage) -> list[Object]:
    return list((await stage.cluster.list(REVISION, "default", f"{LABEL_CONFIGURATION}=magika")).items)


async def deployed(stage: ModelStage, number: int, **spec: object) -> str:
    """Version `number` is deployed and ready."""
    await stage.edit({"spec": {"storageUri": f"file:///models/v{number}", "version": str(number), **spec}})
    name = f"magika-{number:05d}"
    await stage.appears(REVISION, name)
    await stage.comes_up(name)
    return name


async def test_promote_gives_the_latest_everything_and_rollback_takes_it_back(serving: ModelStage) -> None:
    await deployed(serving, 2, canaryTrafficPercent=10)
    await serving.traffic_is({"magika-00001": 90, "magika-00002": 10})
    await serving.edit(promote(await serving.model()))
    await serving.traffic_is({"magika-00002": 100})
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})
    assert await serving.history() == [
        ("magika-00001", "superseded", "user"),
        ("magika-00002", "rolledback", "user"),
        ("magika-00001", "promoted", "rollback"),
    ]
    await serving.tells_of("Promoted", "RolledBack", "TrafficChanged")


async def test_a_second_rollback_undoes_the_first(serving: ModelStage) -> None:
    await deployed(serving, 2)
    await serving.traffic_is({"magika-00002": 100})
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00002": 100})


async def test_rollback_out_of_a_canary_goes_to_who_last_had_everything(serving: ModelStage) -> None:
    await deployed(serving, 2, canaryTrafficPercent=10)
    await serving.traffic_is({"magika-00001": 90, "magika-00002": 10})
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})
    await serving.becomes_history(
        [
            ("magika-00001", "superseded", "user"),
            ("magika-00002", "rolledback", "user"),
            ("magika-00001", "promoted", "rollback"),
        ]
    )
    await deployed(serving, 3, traffic=None)
    await serving.traffic_is({"magika-00003": 100})
    assert (await serving.history())[-1] == ("magika-00003", "promoted", "user")


async def test_a_deploy_after_a_rollback_never_brings_the_refused_version_back(serving: ModelStage) -> None:
    await deployed(serving, 2)
    await serving.traffic_is({"magika-00002": 100})
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})
    await serving.edit({"spec": {"storageUri": "file:///models/v3", "traffic": None, "canaryTrafficPercent": 20}})
    await serving.appears(REVISION, "magika-00003")
    await serving.quiet()
    await serving.ingress_is_ready("magika")
    assert await serving.host_gets() == {"magika-00001": 100}
    await serving.comes_up("magika-00003")
    await serving.traffic_is({"magika-00001": 80, "magika-00003": 20})


async def test_a_version_that_knative_has_collected_is_made_anew(serving: ModelStage) -> None:
    await deployed(serving, 2)
    await serving.traffic_is({"magika-00002": 100})
    await deployed(serving, 3)
    await serving.traffic_is({"magika-00003": 100})
    await serving.cluster.delete(REVISION, "magika-00001", "default")
    living = [one for one in await revisions(serving) if one["metadata"]["name"] != "magika-00001"]
    await serving.edit(rollback(await serving.model(), living, to="magika-00001"))
    await serving.appears(REVISION, "magika-00004")
    await serving.comes_up("magika-00004")
    await serving.traffic_is({"magika-00004": 100})
    model = await serving.model()
    assert model["spec"]["storageUri"] == "file:///models/magika"
    assert (await serving.history())[-1] == ("magika-00004", "promoted", "rollback")


async def test_three_versions_share_by_hand_and_a_deploy_on_top_gets_nothing(serving: ModelStage) -> None:
    await deployed(serving, 2)
    await serving.traffic_is({"magika-00002": 100})
    await deployed(serving, 3)
    await serving.traffic_is({"magika-00003": 100})
    split = [("magika-00001", 20), ("magika-00002", 30), ("latest", 50)]
    await serving.edit(traffic(await serving.model(), split, await revisions(serving)))
    await serving.traffic_is({"magika-00001": 20, "magika-00002": 30, "magika-00003": 50})
    pin = [("magika-00001", 100)]
    await serving.edit(traffic(await serving.model(), pin, await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})
    await deployed(serving, 4)
    await serving.quiet()
    await serving.traffic_is({"magika-00001": 100})


async def test_the_version_to_go_back_to_is_kept_from_collection_and_no_other(serving: ModelStage) -> None:
    await deployed(serving, 2)
    await serving.traffic_is({"magika-00002": 100})
    await deployed(serving, 3)
    await serving.traffic_is({"magika-00003": 100})
    await serving.becomes(REVISION, "magika-00002", lambda obj: obj["metadata"]["annotations"].get(NO_GC) == "true")
    await serving.becomes(REVISION, "magika-00001", lambda obj: NO_GC not in obj["metadata"]["annotations"])

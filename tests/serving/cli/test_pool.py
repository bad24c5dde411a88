"""Test `knodel pool`, and pools in files, on a running control API: only given fields change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from clusters.base.objects import MODEL, WARM_POOL, Object
from serving.cli.verbs.platform import pool
from tests.serving.cli.conftest import Served, check

MODEL_AND_POOL = """
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: magika}
spec: {storageUri: "https://models.test/magika"}
---
apiVersion: knodel.dev/v1alpha1
kind: WarmPool
metadata: {name: small}
spec: {size: 2}
"""


async def spec_of(served: Served, name: str = "small") -> Object:
    """Return the spec of the stored WarmPool."""
    spec: Object = (await served.cluster.get(WARM_POOL, name, "default"))["spec"]
    return spec


async def make(served: Served, *options: str) -> None:
    """Create a pool named `small`."""
    done = await served.knodel("pool", "set", "small", *options)
    assert done.code == 0, done.err


async def test_set_makes_a_pool_with_the_fields_that_are_named(served: Served) -> None:
    done = await served.knodel(
        "pool", "set", "small", "--size", "3", "--cpu", "50m", "--memory", "256Mi", "--max-age", "1h",
        "--budget-memory", "2Gi", "--concurrency", "0", "--timeout", "90s", "--format", "onnx",
    )  # fmt: skip

    assert (done.code, done.err) == (0, "")
    assert done.out == "warm pool small has size 3, for onnx models: `knodel pool list` shows its members\n"
    assert await spec_of(served) == {
        "size": 3,
        "maxAge": "1h",
        "budget": {"memory": "2Gi"},
        "template": {
            "modelFormat": "onnx",
            "resources": {"cpu": "50m", "memory": "256Mi"},
            "containerConcurrency": 0,
            "timeout": "90s",
        },
    }


async def test_set_changes_only_the_fields_that_are_named(served: Served) -> None:
    await make(served, "--size", "3", "--cpu", "2", "--budget-cpu", "8")
    await make(served, "--size", "auto", "--min", "2", "--max", "5", "--memory", "1Gi")

    assert await spec_of(served) == {
        "size": "auto",
        "min": 2,
        "max": 5,
        "budget": {"cpu": "8"},
        "template": {"resources": {"cpu": "2", "memory": "1Gi"}},
    }


async def test_off_sets_size_0_until_set(served: Served) -> None:
    await make(served, "--size", "3", "--cpu", "2")

    done = await served.knodel("pool", "off", "small")
    assert done.out == "warm pool small has size 0: `knodel pool set small --size 1` enables it\n"
    assert await spec_of(served) == {"size": 0, "template": {"resources": {"cpu": "2"}}}

    await make(served, "--size", "1")
    assert (await spec_of(served))["size"] == 1


async def test_a_pool_like_a_model_has_only_the_fields_of_the_model(served: Served) -> None:
    await make(served, "--concurrency", "9", "--timeout", "10s", "--memory", "9Gi", "--size", "2")
    await served.deploy("magika")
    patch = {"spec": {"resources": {"cpu": "250m"}, "modelFormat": "onnx", "serviceAccountName": "models"}}
    await served.cluster.patch(MODEL, "magika", patch, "default", manager="user")

    await make(served, "--like", "magika")

    assert await spec_of(served) == {
        "size": 2,
        "template": {"modelFormat": "onnx", "resources": {"cpu": "250m"}, "serviceAccountName": "models"},
    }


async def test_options_win_over_the_model_that_a_pool_is_like(served: Served) -> None:
    await served.deploy("magika", "--format", "onnx")
    await make(served, "--like", "magika", "--cpu", "3", "--size", "1", "--format", "sklearn")

    assert await spec_of(served) == {"size": 1, "template": {"modelFormat": "sklearn", "resources": {"cpu": "3"}}}


async def test_a_pool_like_a_model_without_a_format_has_the_one_that_its_server_found(served: Served) -> None:
    await served.deploy("iris")
    done = await served.knodel("pool", "set", "small", "--like", "iris", "--size", "1")
    check(done, 2, ["--like iris: the format of the model is not known yet: give --format"])

    await served.set_status("iris", {"modelFormat": "sklearn"})
    await make(served, "--like", "iris", "--size", "1")

    assert await spec_of(served) == {"size": 1, "template": {"modelFormat": "sklearn", "resources": {}}}
    listed = await served.knodel("pool", "list")
    assert listed.out.split()[:2] == ["NAME", "FORMAT"] and "sklearn" in listed.out


async def test_a_pool_like_a_model_that_has_just_become_ready_waits_for_its_format(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.deploy("iris")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await served.set_status("iris", ready)
    watched, watch = asyncio.Event(), served.cluster.watch

    def noted(*arguments: Any, **options: Any) -> Any:
        watched.set()
        return watch(*arguments, **options)

    monkeypatch.setattr(served.cluster, "watch", noted)
    setting = asyncio.create_task(served.knodel("pool", "set", "small", "--like", "iris", "--size", "1"))
    await watched.wait()
    await served.set_status("iris", {**ready, "modelFormat": "sklearn"})
    assert (await setting).code == 0
    assert (await spec_of(served))["template"]["modelFormat"] == "sklearn"


async def test_a_format_that_is_never_reported_is_not_awaited_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.deploy("iris")
    await served.set_status("iris", {"conditions": [{"type": "Ready", "status": "True"}]})
    monkeypatch.setattr(pool, "FORMAT_TIMEOUT", 0.05)
    done = await served.knodel("pool", "set", "small", "--like", "iris", "--size", "1")
    check(done, 2, ["--like iris: the format of the model is not known yet: give --format"])


async def test_explain_names_an_unusable_pool_with_a_working_remedy(served: Served) -> None:
    await served.deploy("iris")
    await served.set_status("iris", {"modelFormat": "sklearn"})
    await make(served, "--size", "2")
    assert "for onnx models" in (await served.knodel("pool", "set", "small", "--size", "3")).out

    told = (await served.knodel("explain", "iris")).out

    assert "warm pool small has onnx members, which a sklearn model cannot use" in told
    advice = told.split("`knodel ", 1)[1].split("`")[0]
    assert (await served.knodel(*advice.split())).code == 0
    assert "cannot use" not in (await served.knodel("explain", "iris")).out


async def test_a_model_with_variants_has_no_class_of_its_own(served: Served) -> None:
    await served.deploy("magika")
    variants = [{"name": "a", "percent": 60, "resources": {"cpu": "2"}}, {"name": "b", "percent": 40}]
    await served.cluster.patch(MODEL, "magika", {"spec": {"variants": variants}}, "default", manager="user")

    done = await served.knodel("pool", "set", "small", "--like", "magika")

    check(done, 2, ["each of its variants (a, b) needs its own pool"])
    await make(served, "--like", "magika", "--cpu", "2", "--memory", "1Gi", "--format", "onnx")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["set", "small"], 2, ["no change to warm pool small is given: give --size N"]),
        (["set", "small", "--size", "some"], 2, ["--size 'some' is not a size: give a number of members, or auto"]),
        (["set", "small", "--size", "-1"], 2, ["--size '-1'"]),
        (["set", "small", "--size", "1001"], 2, ["spec.size: must be auto or a whole number from 0 to 1000"]),
        (["set", "small", "--min", "3", "--max", "2"], 2, ["spec.min: must be at most max (2), not 3"]),
        (["set", "small", "--size", "2", "--max", "4"], 2, ["--min and --max limit the size auto", "the size auto"]),
        (["set", "small", "--cpu", "0"], 2, ["spec.template.resources.cpu: must be more than 0"]),
        (["set", "small", "--max-age", "1s"], 2, ["spec.maxAge: must be at least 60s"]),
        (["set", "Small", "--size", "1"], 2, ["metadata.name", "use lower-case letters"]),
        (["set", "small", "--like", "nobody"], 3, ["--like: model nobody not found in namespace default"]),
        (["off", "small"], 3, ["small", "not found"]),
        (["set", "--size", "1"], 2, ["POOL"]),
        (["sett", "small"], 2, ["sett"]),
    ],
    ids=str,
)
async def test_what_cannot_be_done_is_one_line(
    served: Served, arguments: list[str], code: int, words: list[str]
) -> None:
    check(await served.knodel("pool", *arguments), code, words)
    assert (await served.cluster.list(WARM_POOL)).items == []


async def test_pools_are_listed_before_any_model_is_there(served: Served) -> None:
    await make(served, "--size", "2")
    await served.knodel("namespace", "team")
    assert (await served.knodel("pool", "set", "other", "--min", "1", "-n", "team")).code == 0
    status = {"size": 2, "ready": 1, "starting": 1, "claimed": 0, "reasons": ["Size: as asked"]}
    await served.cluster.patch(
        WARM_POOL, "small", {"status": status}, "default", manager="autoscaler", subresource="status"
    )

    done = await served.knodel("pool", "list")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["NAME", "FORMAT", "SIZE", "WANTED", "READY", "STARTING", "CLAIMED", "NOTE", "AGE"]
    assert rows[1][:-1] == ["small", "onnx", "2", "2", "1", "1", "0", "Size:", "as", "asked"]
    assert len(rows) == 2
    everywhere = (await served.knodel("pool", "list", "-A")).out
    assert [line.split()[:3] for line in everywhere.splitlines()[1:]] == [
        ["default", "small", "onnx"],
        ["team", "other", "onnx"],
    ]


async def test_what_keeps_the_members_away_is_in_the_list(served: Served) -> None:
    await make(served, "--size", "2")
    status = {"seed": {"ready": False, "message": "Configuration knodel-pool-small is there"}, "reasons": ["x"]}
    await served.cluster.patch(
        WARM_POOL, "small", {"status": status}, "default", manager="knodel", subresource="status"
    )
    assert "Configuration knodel-pool-small is there" in (await served.knodel("pool", "list")).out

    status = {"seed": {"ready": True, "message": ""}, "reasons": ["Fixed: 2", "Budget: holds 1"]}
    await served.cluster.patch(
        WARM_POOL, "small", {"status": status}, "default", manager="knodel", subresource="status"
    )
    assert "Budget: holds 1" in (await served.knodel("pool", "list")).out


async def test_every_verb_prints_the_objects_themselves(served: Served) -> None:
    made = json.loads((await served.knodel("pool", "set", "small", "--size", "2", "-o", "json")).out)
    listed = (await served.knodel("pool", "list", "-o", "yaml")).value()
    off = json.loads((await served.knodel("pool", "off", "small", "-o", "json")).out)

    assert (made["kind"], made["spec"]) == ("WarmPool", {"size": 2})
    assert [item["metadata"]["name"] for item in listed["items"]] == ["small"]
    assert off["spec"]["size"] == 0


async def test_deploy_takes_pools_from_files(served: Served) -> None:
    done = await served.knodel("deploy", "-f", "-", "--no-wait", stdin=MODEL_AND_POOL)

    assert (done.code, done.err) == (0, "")
    assert (
        done.out.splitlines()[0] == "warm pool small has size 2, for onnx models: `knodel pool list` shows its members"
    )
    assert await spec_of(served) == {"size": 2}
    assert (await served.model("magika"))["spec"] == {"storageUri": "https://models.test/magika"}


async def test_a_bad_pool_in_a_file_changes_nothing(served: Served) -> None:
    done = await served.knodel("deploy", "-f", "-", "--no-wait", stdin=MODEL_AND_POOL.replace("size: 2", "size: x"))

    check(done, 2, ["spec.size: must be auto or a whole number"])
    assert (await served.cluster.list(MODEL)).items == []


@pytest.mark.parametrize("kind", ["Model", "WarmPool"])
@pytest.mark.parametrize("spec", ["[1]", "[]", "x", "0"])
async def test_a_spec_that_is_no_mapping_is_refused(served: Served, kind: str, spec: str) -> None:
    text = f"{{apiVersion: knodel.dev/v1alpha1, kind: {kind}, metadata: {{name: a}}, spec: {spec}}}"
    check(await served.knodel("deploy", "-f", "-", "--no-wait", stdin=text), 2, ["spec", "mapping"])


async def test_a_file_with_a_pool_can_be_checked_alone_and_only_once_in_it(served: Served) -> None:
    done = await served.knodel("deploy", "-f", "-", "--dry-run", stdin=MODEL_AND_POOL)
    assert done.out.splitlines()[:2] == [
        "model magika is valid and would be created; nothing was changed",
        "warm pool small is valid and would be created; nothing was changed",
    ]
    _, pool = MODEL_AND_POOL.split("---")
    check(await served.knodel("deploy", "-f", "-", stdin=f"{pool}---{pool}"), 2, ["warm pool small is in", "twice"])
    assert (await served.cluster.list(WARM_POOL)).items == []


async def test_a_context_named_before_the_verb_counts_for_pools_too(served: Served) -> None:
    check(await served.knodel("--kube-context", "absent", "pool", "list"), 1, ["no kubeconfig found"])


async def test_a_pool_is_deleted(served: Served) -> None:
    assert (await served.knodel("pool", "set", "fast", "--size", "2")).code == 0

    done = await served.knodel("pool", "delete", "fast")

    assert (done.code, done.out) == (0, "warm pool fast deleted\n")
    assert (await served.cluster.list(WARM_POOL)).items == []
    check(await served.knodel("pool", "delete", "fast"), 3, ["fast"])

"""Test local model files: they are copied before anything changes; only other bytes are a new version."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from clusters.base.objects import MODEL, Object
from serving.client.models import local_files
from serving.client.models.local_files import without_same_bytes
from serving.storage.base.digest import of_bytes
from serving.types.settings.state import KEPT_FOLDER, Facts
from tests.serving.cli.conftest import Served, check

OLD, NEW = of_bytes(b"old"), of_bytes(b"new")


def model_file(tmp_path: Path, content: bytes, name: str = "a model.onnx") -> str:
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


async def test_a_path_becomes_a_file_uri_with_the_digest_of_its_bytes(served: Served, tmp_path: Path) -> None:
    done = await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--no-wait")

    assert done.code == 0, done.err
    assert (await served.model("m"))["spec"] == {"storageUri": f"file://{tmp_path}/a%20model.onnx", "digest": OLD}


async def test_local_adapters_are_copied_as_well(served: Served, state: Path, tmp_path: Path) -> None:
    lora = model_file(tmp_path, b"new", "lora.gguf")
    words = ("--uri", model_file(tmp_path, b"old"), "--adapter", f"pirate={lora}", "--adapter", "b=s3://box/b")
    done = await served.knodel("deploy", "m", *words, "--no-wait")
    again = await served.knodel("deploy", "m", *words, "--no-wait")

    assert done.code == 0, done.err
    pirate, other = (await served.model("m"))["spec"]["llm"]["adapters"]
    assert pirate == {"name": "pirate", "uri": f"file://{tmp_path}/lora.gguf", "digest": NEW}
    assert other == {"name": "b", "uri": "s3://box/b"}
    assert "no new version was created" in again.out
    assert len(list((state / KEPT_FOLDER / "files").iterdir())) == 2


async def test_a_missing_local_adapter_changes_nothing(served: Served, tmp_path: Path) -> None:
    done = await served.knodel("deploy", "m", "--uri", "s3://box/m", "--adapter", f"a={tmp_path}/none", "--no-wait")
    check(done, 2, [f"file://{tmp_path}/none: cannot be opened"])


async def test_the_same_bytes_make_no_version_and_say_so(served: Served, tmp_path: Path) -> None:
    path = model_file(tmp_path, b"old")
    first = await served.knodel("deploy", "m", "--uri", path, "--version", "1", "--no-wait")
    again = await served.knodel("deploy", "m", "--uri", path, "--no-wait")
    copy = await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old", "copy.onnx"), "--no-wait")

    assert "unchanged" not in first.out
    assert "no new version was created" in again.out
    assert "no new version was created" in copy.out
    assert (await served.model("m"))["metadata"]["generation"] == 1


async def test_bytecode_that_running_a_model_writes_makes_no_version(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    model_file(folder, b"class Model: ...", "model.py")
    await served.knodel("deploy", "m", "--uri", str(folder), "--no-wait")
    (folder / "__pycache__").mkdir()
    model_file(folder / "__pycache__", b"bytecode", "model.cpython-311.pyc")
    again = await served.knodel("deploy", "m", "--uri", str(folder), "--no-wait")

    assert "no new version was created" in again.out


async def test_a_dry_run_agrees_with_the_deploy_about_the_same_bytes(served: Served, tmp_path: Path) -> None:
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--version", "1", "--no-wait")
    copy, changed = model_file(tmp_path, b"old", "copy.onnx"), model_file(tmp_path, b"new", "new.onnx")
    same = await served.knodel("deploy", "m", "--uri", copy, "--dry-run")
    other = await served.knodel("deploy", "m", "--uri", changed, "--dry-run")

    assert "would not be changed" in same.out
    assert 'spec.version: "1" → none' in other.out


async def test_changed_bytes_make_a_version_without_the_label_of_the_one_before(served: Served, tmp_path: Path) -> None:
    path = model_file(tmp_path, b"old")
    await served.knodel("deploy", "m", "--uri", path, "--version", "1", "--no-wait")
    model_file(tmp_path, b"new")
    done = await served.knodel("deploy", "m", "--uri", path, "--no-wait")

    assert "unchanged" not in done.out
    assert (await served.model("m"))["spec"] == {"storageUri": f"file://{tmp_path}/a%20model.onnx", "digest": NEW}


async def test_a_file_of_models_is_kept_likewise(served: Served, tmp_path: Path) -> None:
    uri = Path(model_file(tmp_path, b"old")).as_uri()
    text = f"apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {{name: m}}\nspec: {{storageUri: '{uri}'}}\n"
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=text)).code == 0
    assert (await served.model("m"))["spec"]["digest"] == OLD
    assert (await served.knodel("diff", "-f", "-", stdin=text)).code == 0
    model_file(tmp_path, b"new")
    assert NEW in (await served.knodel("diff", "-f", "-", stdin=text)).out


async def add_loaded(served: Served, uri: str, digest: str, ready: str = "True", **status: object) -> None:
    """Create the Model `m` as kubectl or an event does, without a digest; its first replica has loaded `digest`."""
    metadata = {"name": "m", "namespace": "default"}
    await served.cluster.create(MODEL, {"metadata": metadata, "spec": {"storageUri": uri, "version": "1"}}, manager="k")
    entry = {"revision": "m-00001", "storageUri": uri, "digest": digest, "at": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "ConfigurationsReady", "status": ready}]
    found = {"latestCreatedRevision": "m-00001", "history": [entry], "conditions": conditions}
    await served.set_status("m", {**found, **status})


def document(uri: str, more: str = "") -> str:
    return f"apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {{name: m}}\nspec: {{storageUri: '{uri}'{more}}}\n"


async def test_the_bytes_that_a_version_loaded_make_no_new_one(served: Served, tmp_path: Path) -> None:
    path, copy = model_file(tmp_path, b"old"), Path(model_file(tmp_path, b"old", "copy.onnx"))
    await add_loaded(served, Path(path).as_uri(), OLD)
    before = await served.model("m")
    for uri in (Path(path).as_uri(), copy.as_uri()):
        for given in (("m", "--uri", uri), ("m", "--digest", OLD), ("-f", "-")):
            plan = await served.knodel("deploy", *given, "--dry-run", stdin=document(uri))
            done = await served.knodel("deploy", *given, "--no-wait", stdin=document(uri))
            assert "would not be changed" in plan.out, plan
            assert "unchanged: the newest version has these files" in done.out, done
        assert (await served.knodel("diff", "-f", "-", stdin=document(uri))).code == 0
    assert await served.model("m") == before
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"new"), "--no-wait")
    assert (await served.model("m"))["spec"] == {"storageUri": Path(path).as_uri(), "digest": NEW}


async def test_a_deploy_waits_for_the_digest_of_a_version_that_has_just_become_ready(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_file(tmp_path, b"old")
    await add_loaded(served, Path(path).as_uri(), "")
    deploying = asyncio.ensure_future(served.knodel("deploy", "m", "--uri", path, "--no-wait"))
    done, _ = await asyncio.wait([deploying], timeout=1.0)
    assert not done
    entry = {"revision": "m-00001", "storageUri": Path(path).as_uri(), "digest": OLD}
    await served.set_status("m", {"history": [entry]})
    assert "unchanged" in (await deploying).out

    await served.set_status("m", {"history": [{**entry, "digest": ""}]})  # a server that reports no digest
    monkeypatch.setattr(local_files, "RECORD_TIMEOUT", 0.1)
    assert "unchanged" not in (await served.knodel("deploy", "m", "--uri", path, "--no-wait")).out
    assert (await served.model("m"))["spec"] == {"storageUri": Path(path).as_uri(), "digest": OLD}


@pytest.mark.parametrize("spec", ["3", "[a]", "{storageUri: 3, digest: [b]}"])
async def test_a_spec_of_another_type_is_refused(served: Served, tmp_path: Path, spec: str) -> None:
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--no-wait")
    text = f"apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {{name: m}}\nspec: {spec}\n"
    check(await served.knodel("deploy", "-f", "-", stdin=text), 2, ["spec"])


@pytest.mark.parametrize("loaded", ["stale", "starting", "another URI", "another version"])
async def test_bytes_of_another_version_or_of_none_are_deployed(
    served: Served, tmp_path: Path, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_file(tmp_path, b"old")
    uri, elsewhere = Path(path).as_uri(), (tmp_path / "b.onnx").as_uri()
    ready = "Unknown" if loaded == "starting" else "True"
    await add_loaded(served, uri, OLD, ready)
    if loaded == "stale":
        await served.set_status("m", {"observedGeneration": 0})
    if loaded == "another URI":
        monkeypatch.setattr(local_files, "RECORD_TIMEOUT", 0.1)
        await served.set_status("m", {"history": [{"revision": "m-00001", "storageUri": elsewhere, "digest": OLD}]})
    if loaded == "another version":
        monkeypatch.setattr(local_files, "RECORD_TIMEOUT", 0.1)
        await served.set_status("m", {"latestCreatedRevision": "m-00002"})
    done = await served.knodel("deploy", "m", "--uri", path, "--no-wait")
    assert "unchanged" not in done.out
    assert (await served.model("m"))["spec"] == {"storageUri": uri, "digest": OLD}


async def test_files_whose_store_is_gone_can_be_deployed_from_another_place(served: Served, tmp_path: Path) -> None:
    """Replicas of a version fetch its files from its URI, so another URI is a change, with the same label."""
    await served.knodel("deploy", "m", "--uri", "s3://old/m.onnx", "--digest", OLD, "--version", "1", "--no-wait")
    for uri in ("s3://new/m.onnx", Path(model_file(tmp_path, b"old", "m.onnx")).as_uri()):
        done = await served.knodel("deploy", "m", "--uri", uri, "--digest", OLD, "--no-wait")
        assert "unchanged" not in done.out
        assert (await served.model("m"))["spec"] == {"storageUri": uri, "digest": OLD, "version": "1"}


async def test_a_file_of_models_leaves_label_and_digest_of_other_bytes_behind(served: Served, tmp_path: Path) -> None:
    first, second = "https://models.test/1.onnx", "https://models.test/2.onnx"
    await served.knodel("deploy", "m", "--uri", first, "--digest", OLD, "--version", "1", "--no-wait")
    again = await served.knodel("deploy", "-f", "-", "--no-wait", stdin=document(first))
    assert "unchanged: the newest version has these files" in again.out
    assert (await served.model("m"))["metadata"]["generation"] == 1
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=document(second))).code == 0
    assert (await served.model("m"))["spec"] == {"storageUri": second}


async def test_a_digest_alone_in_a_file_of_models_must_be_that_of_the_files(served: Served, tmp_path: Path) -> None:
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--no-wait")
    text = f"apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {{name: m}}\nspec: {{digest: '{NEW}'}}\n"
    for command in (("deploy", "--no-wait"), ("diff",)):
        check(await served.knodel(*command, "-f", "-", stdin=text), 2, [OLD, NEW, "was expected"])


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
async def test_files_that_cannot_be_served_are_refused_before_anything_changes(
    served: Served, tmp_path: Path, more: tuple[str, ...]
) -> None:
    missing = await served.knodel("deploy", "m", "--uri", str(tmp_path / "no.onnx"), *more)
    check(missing, 2, ["no.onnx", "No such file or directory"])
    other = await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--digest", NEW, *more)
    check(other, 2, [OLD, NEW, "was expected"])
    assert (await served.knodel("get", "m")).code == 3


async def test_a_version_can_be_deployed_again_by_its_digest_after_its_file_was_deleted(
    served: Served, tmp_path: Path
) -> None:
    path = model_file(tmp_path, b"old")
    await served.knodel("deploy", "m", "--uri", path, "--no-wait")
    Path(path).unlink()
    done = await served.knodel("deploy", "again", "--uri", path, "--digest", OLD, "--no-wait")
    assert done.code == 0, done.err


async def test_a_uri_without_digest_leaves_that_of_the_files_before_behind(served: Served, tmp_path: Path) -> None:
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--no-wait")
    await served.knodel("deploy", "m", "--uri", "https://models.test/m.onnx", "--no-wait")
    assert (await served.model("m"))["spec"] == {"storageUri": "https://models.test/m.onnx"}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("ftp://host/m.onnx", ["the scheme 'ftp' is unknown", "use one of file, http, https, s3"]),
    ],
)
async def test_unknown_schemes_are_refused_with_the_remedy(served: Served, uri: str, words: list[str]) -> None:
    check(await served.knodel("deploy", "m", "--uri", uri), 2, words)


async def test_a_deploy_below_a_pin_warns_that_it_gets_no_traffic(served: Served, tmp_path: Path) -> None:
    await served.deploy_two_versions("m", {})
    await served.cluster.patch(
        MODEL, "m", {"spec": {"traffic": [{"revision": "m-00001", "percent": 100}]}}, "default", manager="test"
    )
    done = await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"new"), "--no-wait")
    assert done.code == 0
    remedy = "`knodel promote m` sends it all the traffic"
    assert done.err == f"the traffic of model m is pinned, so the newest version gets 0 %: {remedy}\n"


async def test_dots_in_a_path_are_resolved(served: Served, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    model_file(tmp_path, b"old", "m.onnx")
    done = await served.knodel("deploy", "m", "--uri", f"{tmp_path}/other/../m.onnx", "--no-wait")
    assert done.code == 0, done.err
    assert (await served.model("m"))["spec"] == {"storageUri": f"file://{tmp_path}/m.onnx", "digest": OLD}


async def test_a_path_that_is_not_utf_8_is_deployed(served: Served, tmp_path: Path) -> None:
    path = model_file(tmp_path, b"old", os.fsdecode(b"m\xff.onnx"))
    done = await served.knodel("deploy", "m", "--uri", path, "--no-wait")
    assert done.code == 0, done.err
    assert (await served.model("m"))["spec"] == {"storageUri": f"file://{tmp_path}/m%FF.onnx", "digest": OLD}


async def test_an_empty_folder_is_refused(served: Served, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check(await served.knodel("deploy", "m", "--uri", str(tmp_path / "empty")), 2, ["empty", "has no files"])
    assert (await served.knodel("get", "m")).code == 3


@pytest.mark.parametrize("scheme", ["HTTP", "Https", "S3", "HF"])
async def test_a_scheme_may_be_written_in_capitals(served: Served, scheme: str) -> None:
    done = await served.knodel("deploy", "m", "--uri", f"{scheme}://models/Iris", "--no-wait")

    assert done.code == 0, done.err
    assert (await served.model("m"))["spec"] == {"storageUri": f"{scheme.lower()}://models/Iris"}


async def test_the_scheme_of_a_file_may_be_written_in_capitals(served: Served, tmp_path: Path) -> None:
    path = model_file(tmp_path, b"old", "m.onnx")
    done = await served.knodel("deploy", "m", "--uri", f"FILE://{path}", "--no-wait")
    assert done.code == 0, done.err
    assert (await served.model("m"))["spec"]["digest"] == OLD
    for uri in (f"file:{path}", f"FILE:{path}"):
        check(await served.knodel("deploy", "other", "--uri", uri), 2, ["must be file:// and an absolute path"])


async def test_a_digest_alone_must_be_that_of_the_file_or_of_a_kept_copy(served: Served, tmp_path: Path) -> None:
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"new"), "--no-wait")
    await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"), "--no-wait")
    wrong = of_bytes(b"wrong")
    for more in ((), ("--dry-run",)):
        done = await served.knodel("deploy", "m", "--digest", wrong, "--no-wait", *more)
        check(done, 2, [OLD, wrong, "was expected"])
    assert (await served.model("m"))["spec"]["digest"] == OLD
    assert (await served.knodel("deploy", "m", "--digest", NEW, "--no-wait")).code == 0  # its copy is kept
    assert (await served.model("m"))["spec"]["digest"] == NEW


@pytest.mark.parametrize("more", [(), ("--digest", OLD)])
async def test_a_deploy_of_the_same_files_replaces_their_damaged_copy(
    served: Served, state: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = model_file(tmp_path, b"old")
    await served.knodel("deploy", "m", "--uri", path, "--no-wait")
    copy = next((state / KEPT_FOLDER / "files").rglob("file"))
    copy.chmod(0o600)
    copy.write_bytes(b"bad")
    done = await served.knodel("deploy", "m", "--uri", path, "--no-wait", *more)
    assert done.code == 0, done.err
    assert copy.read_bytes() == b"old"

    copy.chmod(0o600)
    copy.write_bytes(b"bad")
    Path(path).unlink()
    done = await served.knodel("deploy", "m", "--digest", OLD, "--no-wait")
    check(done, 2, [f"its kept copy {copy} is damaged", "deploy other files"])


async def test_a_remote_source_that_was_not_fetched_is_not_called_unchanged(served: Served) -> None:
    uri = "https://models.test/m.onnx"
    await served.knodel("deploy", "m", "--uri", uri, "--no-wait")
    done = await served.knodel("deploy", "m", "--uri", uri, "--no-wait")
    assert f"{uri} was not fetched again: give --version or --digest to create a new version" in done.out
    assert "these files" not in done.out
    await served.knodel("deploy", "m", "--digest", OLD, "--no-wait")
    done = await served.knodel("deploy", "m", "--uri", uri, "--digest", OLD, "--no-wait")
    assert "the newest version has these files" in done.out


async def test_the_limit_is_that_of_the_platform(
    served: Served, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts.read(state)
    assert facts is not None
    replace(facts, kept_limit=2).write()
    monkeypatch.setenv("KNODEL_KEPT_LIMIT", "1000")
    done = await served.knodel("deploy", "m", "--uri", model_file(tmp_path, b"old"))
    check(done, 1, ["has 3 bytes", "0 bytes of 2 bytes: delete", "try again after 11 minutes", "KNODEL_KEPT_LIMIT"])


SERVED: Object = {"spec": {"storageUri": "file:///m.onnx", "digest": OLD, "version": "1"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minReplicas": 1}, {"minReplicas": 1}),
        ({"storageUri": "file:///m.onnx", "digest": OLD}, {}),
        ({"storageUri": "file:///copy.onnx", "digest": OLD, "version": "2"}, {"version": "2"}),
        (
            {"storageUri": "file:///m.json", "digest": OLD},
            {"storageUri": "file:///m.json", "digest": OLD, "version": None},
        ),
        (
            {"storageUri": "file:///m.onnx", "digest": NEW},
            {"storageUri": "file:///m.onnx", "digest": NEW, "version": None},
        ),
        ({"storageUri": "https://h/m", "digest": None}, {"storageUri": "https://h/m", "digest": None, "version": None}),
        ({"storageUri": "s3://b/m.onnx", "digest": OLD}, {"storageUri": "s3://b/m.onnx", "digest": OLD}),
    ],
)
def test_what_a_deploy_changes(spec: Object, expected: Object) -> None:
    assert without_same_bytes({"spec": spec}, SERVED)["spec"] == expected
    assert without_same_bytes({"spec": spec}, {})["spec"] == spec


@pytest.mark.parametrize(
    ("before", "after", "more", "same"),
    [
        ("other.txt", "model.txt", {}, False),
        ("model.txt", "other.txt", {}, False),
        ("weights.json", "MODEL.json", {}, False),
        ("other.txt", "another.txt", {}, True),
        ("other.txt", "model.txt", {"modelFormat": "lightgbm"}, True),
        ("m.tar.gz", "m.tgz", {}, True),
        ("m.tar.gz", "m.gz", {}, False),
    ],
)
def test_a_name_that_decides_the_format_is_a_part_of_the_version(
    before: str, after: str, more: Object, same: bool
) -> None:
    present = {"spec": {"storageUri": f"file:///{before}", "digest": OLD, **more}}
    files = {"storageUri": f"file:///{after}", "digest": OLD}
    assert without_same_bytes({"spec": files}, present)["spec"] == ({} if same else files)

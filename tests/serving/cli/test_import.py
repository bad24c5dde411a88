"""Test `import`: Models on stdout, a report on stderr, exit codes, and `--apply`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.serving.cli.conftest import Knodel, Served, check
from tests.serving.importing.test_inference_service import onnx, service

MODEL = "https://models.test/iris.onnx"
WITH_LOGGER = service({**onnx(storageUri=MODEL), "logger": {"mode": "all"}})
COMPLETE = service(onnx(storageUri=MODEL))


def write(folder: Path, name: str, *documents: object) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_complete_conversion_prints_the_model(knodel: Knodel, tmp_path: Path) -> None:
    file = write(tmp_path, "isvc.yaml", COMPLETE)
    done = knodel("import", "-f", file)
    assert done.code == 0
    assert done.value()["spec"] == {"storageUri": MODEL, "modelFormat": "onnx", "minReplicas": 1}
    assert done.err.splitlines() == [
        f"InferenceService iris ({file}): Model iris",
        "1 of 1 objects converted, no field was left out",
    ]
    assert knodel("import", "-f", file, "-o", "json").value() == done.value()
    assert knodel("import", "-f", file, "-n", "ml").value()["metadata"] == {"name": "iris", "namespace": "ml"}


def test_what_was_left_out_is_listed_and_changes_the_exit_code(knodel: Knodel, tmp_path: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ml"}}
    write(tmp_path, "all/isvc.yml", WITH_LOGGER, secret)
    more = {"apiVersion": "v1", "kind": "List", "items": [service(onnx(storageUri=MODEL), name="other")]}
    write(tmp_path, "all/deep/list.json", more)
    (tmp_path / "all" / "README.md").write_text("{")
    done = knodel("import", "-f", str(tmp_path / "all"))
    assert done.code == 5
    assert [item["metadata"]["name"] for item in done.value()["items"]] == ["other", "iris"]
    assert "  left out: spec.predictor.logger (1 field): of a Model, payloads are not logged; log them" in done.err
    assert f"Secret ml/s ({tmp_path}/all/isvc.yml): not converted" in done.err
    assert done.err.splitlines()[-1] == "2 of 3 objects converted, 1 field was left out"


def test_a_store_is_named_by_an_option(knodel: Knodel, tmp_path: Path) -> None:
    document = service({"model": {"modelFormat": {"name": "onnx"}, "storage": {"key": "minio", "path": "a.onnx"}}})
    file = write(tmp_path, "isvc.yaml", document)
    without = knodel("import", "-f", file)
    assert (without.code, without.out) == (5, "")
    assert "name it with --storage minio=URI" in without.err
    assert (
        knodel("import", "-f", file, "--storage", "minio=s3://models").value()["spec"]["storageUri"]
        == "s3://models/a.onnx"
    )
    check(knodel("import", "-f", file, "--storage", "minio"), 2, ["--storage minio is not KEY=URI"])


def test_a_hundred_documents_are_converted(knodel: Knodel) -> None:
    documents = [service(onnx(storageUri=MODEL), name=f"iris-{number}") for number in range(100)]
    done = knodel("import", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert (done.code, len(done.value()["items"])) == (0, 100)


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{f'*{old}, ' * 9}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", ["stdin: at the end: did not find"]),
        (BOMB, ["stdin", "aliases"]),
        ("", ["- has no object"]),
        ("- 1\n", ["document 1 is not an object"]),
        (f"{yaml.safe_dump(COMPLETE)}---\n{yaml.safe_dump(WITH_LOGGER)}", ["several objects have the name iris"]),
    ],
)
def test_bad_input_prints_nothing_else(knodel: Knodel, text: str, words: list[str]) -> None:
    check(knodel("import", "-f", "-", stdin=text), 2, words)


def test_files_that_cannot_be_read_are_named(knodel: Knodel, tmp_path: Path) -> None:
    check(knodel("import", "-f", str(tmp_path / "no.yaml")), 2, ["cannot read", "no.yaml"])
    check(knodel("import", "-f", str(tmp_path)), 2, ["has 0 files .yaml, .yml, .json"])
    file = write(tmp_path, "isvc.yaml", service(onnx(storageUri=MODEL), namespace="ml"))
    check(knodel("import", "-f", file, "-n", "other"), 2, ["iris is in namespace ml, not other"])


async def test_apply_deploys_the_models(served: Served, tmp_path: Path) -> None:
    file = write(tmp_path, "isvc.yaml", WITH_LOGGER)
    done = await served.knodel("import", "-f", file, "--apply", "--no-wait")
    assert done.code == 5
    assert done.out.startswith("model iris")
    assert (await served.model("iris"))["spec"]["storageUri"] == MODEL

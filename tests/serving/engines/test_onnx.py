"""The ONNX engine with models built by hand, and with the model of magika."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.engine import ANY, Cancellation, EngineOptions, TensorSpec
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.warmup import warm_up
from serving.engines.onnx.engine import OnnxEngine, load
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError
from serving.storage.fetch import fetch
from tests.support import models
from tests.support.models import FLOAT, INT64, STRING, model, node, value


def installed(package: str) -> Path:
    """Return the folder of a package without importing it, since the package would import ONNX Runtime itself."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


MAGIKA = installed("magika") / "models" / "standard_v3_3" / "model.onnx"


def loaded(path: Path, digest: str = "") -> OnnxEngine:
    return load(fetch(path.as_uri(), digest, path.parent / "cache", frozenset()), EngineOptions())


def engine(folder: Path, content: bytes) -> OnnxEngine:
    path = folder / "m.onnx"
    path.write_bytes(content)
    return loaded(path)


def test_magika_is_loaded_described_and_warmed_up() -> None:
    made = loaded(MAGIKA)
    assert made.signature.platform == "onnx_onnxv1"
    assert made.signature.inputs == (TensorSpec("bytes", "INT32", (ANY, 2048)),)
    assert made.signature.outputs == (TensorSpec("target_label", "FP32", (ANY, 214)),)
    assert warm_up(made) is not None
    (answer,) = made.infer({"bytes": np.full((3, 2048), 256, np.int32)}, ["target_label"])
    assert answer.shape == (3, 214)
    np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-4)


def test_a_folder_is_served_by_its_model_onnx_or_its_only_model(tmp_path: Path) -> None:
    x = np.ones(1, np.float32)
    only = tmp_path / "only"
    models.write(only, "double")
    assert loaded(only).infer({"x": x}, ["y"])[0] == 2
    models.write(only, "triple").rename(only / "model.onnx")
    assert loaded(only).infer({"x": x}, ["y"])[0] == 3
    (only / "model.onnx").rename(only / "other.onnx")
    with pytest.raises(LoadFailed, match=r"2 \.onnx files"):
        loaded(only)


def test_texts_go_in_as_str_or_bytes_and_come_out_as_str(tmp_path: Path) -> None:
    made = engine(tmp_path, models.text())
    assert made.infer({"x": np.array(["Ü", b"b"], dtype=object)}, ["y"])[0].tolist() == ["Ü", "b"]
    with pytest.raises(InputRefused):
        made.infer({"x": np.array([b"\xff"], dtype=object)}, ["y"])


def test_warm_up_is_tolerant_of_models_that_want_a_meaning(tmp_path: Path) -> None:
    nodes = [node("Gather", ["table", "x"], ["y"])]
    picky = model(nodes, [value("x", INT64, ["n"])], [value("y", FLOAT, ["n"])], [models.floats("table", [], [0])])
    assert warm_up(engine(tmp_path, picky)) is None


def test_warm_up_invents_no_gigabytes(tmp_path: Path) -> None:
    huge = [1 << 20, 1 << 20]
    identity = model([node("Identity", ["x"], ["y"])], [value("x", FLOAT, huge)], [value("y", FLOAT, huge)])
    assert warm_up(engine(tmp_path, identity)) is None


def test_an_output_that_is_no_tensor_is_left_out_and_one_is_needed(tmp_path: Path) -> None:
    made = loaded(installed("onnxruntime") / "datasets" / "logreg_iris.onnx")
    assert [spec.name for spec in made.signature.outputs] == ["label"]


def test_a_refused_input_a_failure_and_a_cancellation_are_told_apart(tmp_path: Path) -> None:
    gather = model(
        [node("Gather", ["table", "x"], ["y"])], [value("x", INT64, ["n"])], [value("y", FLOAT, ["n"])],
        [models.floats("table", [1, 2], [2])],
    )  # fmt: skip
    with pytest.raises(InputRefused):
        engine(tmp_path, gather).infer({"x": np.array([5])}, ["y"])
    reshape = model(
        [node("Reshape", ["x", "to"], ["y"])], [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["a", "b"])],
        [models.integers("to", [2, 2])],
    )  # fmt: skip
    with pytest.raises(InferenceFailed):
        engine(tmp_path, reshape).infer({"x": np.ones(3, np.float32)}, ["y"])
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        engine(tmp_path, models.double()).infer({"x": np.ones(1, np.float32)}, ["y"], cancelled)


def test_an_inference_ends_soon_after_it_is_cancelled(tmp_path: Path) -> None:
    made = engine(tmp_path, models.slow())
    cancellation, outcome = Cancellation(), []

    def work() -> None:
        try:
            made.infer({"x": np.ones(1, np.float32)}, ["y"], cancellation)
        except Cancelled as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    cancellation.cancel()
    thread.join(10)
    assert outcome


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_damaged_model_is_refused_in_words_without_paths(tmp_path: Path, cut: float) -> None:
    content = models.double()
    with pytest.raises(EngineError) as error:
        engine(tmp_path, content[: int(len(content) * cut)])
    assert "\n" not in str(error.value) and "/" not in str(error.value)


def test_an_operator_that_is_not_known_is_named(tmp_path: Path) -> None:
    odd = model([node("Frobnicate", ["x"], ["y"])], [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["n"])])
    with pytest.raises(LoadFailed, match="Frobnicate"):
        engine(tmp_path, odd)


def test_only_models_known_to_have_no_loops_are_bounded(tmp_path: Path) -> None:
    assert engine(tmp_path, models.double()).bounded
    branch = models.chunk(1, node("Identity", ["x"], ["b"])) + models.chunk(2, "g")
    branch += models.chunk(12, value("b", FLOAT, ["n"]))
    branches = [models.chunk(1, f"{name}_branch") + models.chunk(6, branch) + models.number(20, 5)
                for name in ("then", "else")]  # fmt: skip
    choice = model(
        [node("If", ["c"], ["y"], *branches)], [value("x", FLOAT, ["n"]), value("c", models.BOOL, [])],
        [value("y", FLOAT, ["n"])],
    )  # fmt: skip
    assert not engine(tmp_path, choice).bounded


def test_data_in_another_file_of_the_folder_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "data").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(models.outside("data/factor.bin"))
    (folder / "data" / "factor.bin").write_bytes(np.float32(5).tobytes())
    assert loaded(folder).infer({"x": np.ones(1, np.float32)}, ["y"])[0] == 5


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/passwd", "data/../../secret.bin", "link.bin", "missing.bin", "", "*/_ORT_MEM_ADDR_/*"],
)
def test_data_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(np.float32(5).tobytes())
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "model.onnx").write_bytes(models.outside(location))
    with pytest.raises((EngineError, StorageError)):
        loaded(folder)


def test_data_in_another_file_needs_the_folder_as_uri(tmp_path: Path) -> None:
    (tmp_path / "factor.bin").write_bytes(np.float32(5).tobytes())
    with pytest.raises(LoadFailed, match="folder"):
        engine(tmp_path, models.outside("factor.bin"))


def test_data_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "factor.bin").write_bytes(b"\0\0")
    (folder / "model.onnx").write_bytes(models.outside("factor.bin"))
    with pytest.raises(EngineError):
        loaded(folder)


@pytest.mark.fault("M2")
def test_what_was_verified_is_what_runs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(models.double())
    digest = "sha256:" + hashlib.sha256(models.double()).hexdigest()
    artifact = fetch(path.as_uri(), digest, tmp_path / "cache", frozenset())
    path.write_bytes(models.triple())
    assert load(artifact, EngineOptions()).infer({"x": np.ones(1, np.float32)}, ["y"])[0] == 2


def test_the_bytes_of_the_file_are_freed_once_the_model_is_loaded(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path / "m.onnx", models.double())
    before = sys.getrefcount(artifact.content)
    made = load(artifact, EngineOptions())
    after = sys.getrefcount(artifact.content)  # not in the assertion, which would hold one more

    assert after == before
    assert made.infer({"x": np.ones(1, np.float32)}, ["y"])[0] == 2


def test_strings_have_a_datatype(tmp_path: Path) -> None:
    assert engine(tmp_path, models.text()).signature.inputs[0].datatype == "BYTES"
    assert STRING == 8

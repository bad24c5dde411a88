"""The TensorFlow engine with models trained and saved here."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from serving.engines.base.engine import ANY, Cancellation, EngineOptions, TensorSpec
from serving.engines.base.errors import Cancelled, InputRefused, LoadFailed
from serving.engines.base.warmup import warm_up
from serving.engines.tensorflow.graph import refuse_unsafe_operators
from serving.storage.base import digest as digests
from serving.storage.fetch import fetch

if TYPE_CHECKING:
    from serving.engines.tensorflow.engine import TensorflowEngine


class Library:
    """TensorFlow, imported at its first use: each worker collects this file, and one of them runs its tests."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest reads such attributes of all values in a module
            raise AttributeError(name)
        from serving.engines.tensorflow import library

        return getattr(library.tensorflow, name)


tf: Any = Library()
STEPS = 60  # of training; the loss is a tenth of its first value then
ANY_ROWS = (ANY,)


def load(artifact: Any, options: EngineOptions) -> TensorflowEngine:
    """Load with the engine."""
    from serving.engines.tensorflow import engine

    return engine.load(artifact, options)


def is_stateful(op: str) -> bool:
    """Return whether TensorFlow declares an operator as one with state."""
    from serving.engines.tensorflow import library

    return library.is_stateful(op)


def loaded(folder: Path, digest: str = "", **options: Any) -> TensorflowEngine:
    return load(fetch(folder.as_uri(), digest, folder.parent / "cache", frozenset()), EngineOptions(**options))


def function(*specs: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a graph with inputs of these specs."""
    made: Callable[[Callable[..., Any]], Any] = tf.function(input_signature=specs)
    return made


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a trained SavedModel."""

    class Line(tf.Module):  # type: ignore[misc]
        """A trained model of y = 2x + 1."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = tf.Variable(0.0), tf.Variable(0.0)

        @function(tf.TensorSpec([None], tf.float32, name="x"))
        def __call__(self, x: Any) -> Any:
            return {"y": self.weight * x + self.bias, "twice": 2 * (self.weight * x + self.bias)}

        def train(self) -> None:
            x = tf.constant(np.linspace(-1, 1, 50, dtype=np.float32))
            for _ in range(STEPS):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(x)["y"] - (2 * x + 1)) ** 2)
                variables = self.trainable_variables
                for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
                    variable.assign_sub(0.3 * slope)

    folder = tmp_path_factory.mktemp("line") / "model"
    model = Line()
    model.train()
    tf.saved_model.save(model, str(folder))
    yield folder


def saved(folder: Path, graph: Any, **signatures: Any) -> Path:
    """Return the folder of a SavedModel of a graph without variables."""
    module = tf.Module()
    module.graph = graph
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures or None)
    return folder / "model"


def test_a_trained_model_is_described_warmed_up_and_asked(line: Path) -> None:
    made = loaded(line)
    assert made.signature.platform == "tensorflow_savedmodel"
    assert made.signature.inputs == (TensorSpec("x", "FP32", ANY_ROWS),)
    assert set(made.signature.outputs) == {TensorSpec("y", "FP32", ANY_ROWS), TensorSpec("twice", "FP32", ANY_ROWS)}
    assert warm_up(made) is not None
    twice, y = made.infer({"x": np.array([0, 1], np.float32)}, ["twice", "y"])
    np.testing.assert_allclose(y, [1, 3], atol=0.05)
    np.testing.assert_array_equal(twice, 2 * y)
    assert not made.bounded


def test_many_threads_each_get_their_own_answer(line: Path) -> None:
    made = loaded(line, threads=2)
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda number: made.infer({"x": np.full(1, number, np.float32)}, ["y"])[0][0], range(64))
    np.testing.assert_allclose(list(answers), [2 * number + 1 for number in range(64)], rtol=0.05)


def test_the_verified_bytes_are_loaded_also_from_the_folder_of_a_version(line: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    for path in (path for path in line.rglob("*") if path.is_file()):
        to = folder / "1" / path.relative_to(line)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    promised = digests.of_folder({name: digests.of_bytes(path.read_bytes()) for name, path in names.items()})
    artifact = fetch(folder.as_uri(), promised, tmp_path / "cache", frozenset())
    made = load(artifact, EngineOptions())
    assert made.infer({"x": np.ones(1, np.float32)}, ["y"])[0][0] == pytest.approx(3, abs=0.1)
    (folder / "1" / "saved_model.pb").write_bytes(b"other")
    with pytest.raises(Exception, match="changed"):
        load(artifact, EngineOptions())


def test_texts_halves_and_single_numbers_go_in_and_out(tmp_path: Path) -> None:
    @function(
        tf.TensorSpec([None], tf.string, name="text"),
        tf.TensorSpec([], tf.float16, name="half"),
        tf.TensorSpec([None], tf.bfloat16, name="brain"),
        tf.TensorSpec([None], tf.bool, name="flag"),
    )
    def graph(text: Any, half: Any, brain: Any, flag: Any) -> Any:
        texts = {"upper": tf.strings.upper(text), "joined": tf.strings.reduce_join(text)}
        return {**texts, "half": half * 2, "brain": brain * 2, "not": tf.logical_not(flag)}

    made = loaded(saved(tmp_path, graph))
    inputs = {
        "text": np.array(["ü", b"b"], dtype=object),
        "half": np.array(1.5, np.float16),
        "brain": np.array([1.5], np.float32),
        "flag": np.array([True]),
    }
    assert {spec.name: spec.datatype for spec in made.signature.inputs}["brain"] == "BF16"
    upper, joined, half, brain, inverse = made.infer(inputs, ["upper", "joined", "half", "brain", "not"])
    assert (brain.dtype, brain.tolist()) == (np.dtype(np.float32), [3.0])
    assert (upper.tolist(), joined.tolist(), joined.shape) == (["ü".encode(), b"B"], "üb".encode(), ())
    assert half.dtype == np.float16
    assert (half.shape, float(half), inverse.tolist()) == ((), 3.0, [False])


def test_the_only_signature_is_served_or_the_one_that_is_named(tmp_path: Path) -> None:
    @function(tf.TensorSpec([None], tf.float32, name="x"))
    def double(x: Any) -> Any:
        return {"y": 2 * x}

    @function(tf.TensorSpec([None], tf.float32, name="x"))
    def triple(x: Any) -> Any:
        return {"y": 3 * x}

    x = {"x": np.ones(1, np.float32)}
    one = saved(tmp_path / "one", double, double=double)
    assert loaded(one).infer(x, ["y"])[0] == 2
    two = saved(tmp_path / "two", double, double=double, triple=triple)
    assert loaded(two, signature="triple").infer(x, ["y"])[0] == 3
    with pytest.raises(LoadFailed, match="'double', 'triple'"):
        loaded(two)
    usual = saved(tmp_path / "usual", double, double=double, serving_default=triple)
    assert loaded(usual).infer(x, ["y"])[0] == 3


def test_an_input_that_the_graph_refuses_is_the_callers_fault(tmp_path: Path) -> None:
    @function(tf.TensorSpec([None], tf.int32, name="index"))
    def graph(index: Any) -> Any:
        return {"y": tf.gather(tf.constant([1.0, 2.0]), index)}

    with pytest.raises(InputRefused):
        loaded(saved(tmp_path, graph)).infer({"index": np.array([7], np.int32)}, ["y"])


def test_an_inference_ends_soon_after_it_is_cancelled(tmp_path: Path) -> None:
    @function(tf.TensorSpec([], tf.float32, name="x"))
    def graph(x: Any) -> Any:
        return {"y": tf.while_loop(lambda y: y < 1e30, lambda y: [tf.minimum(y, 5.0) + 1], [x])[0]}

    made, cancellation = loaded(saved(tmp_path, graph)), Cancellation()
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            made.infer({"x": np.array(1, np.float32)}, ["y"], cancellation)
        except Cancelled as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    cancellation.cancel()
    thread.join(10)
    assert outcome


def reads(name: Any) -> Any:
    return tf.io.read_file(name)


def writes(name: Any) -> Any:
    with tf.control_dependencies([tf.io.write_file(name, "x")]):
        return tf.identity(name)


def calls_python(name: Any) -> Any:
    return tf.py_function(lambda: b"", [], tf.string)


def prints_to_a_file(name: Any) -> Any:
    with tf.control_dependencies([tf.print(name, output_stream="file:///tmp/x")]):
        return tf.identity(name)


def looks_up_in_a_file(name: Any) -> Any:
    values = tf.data.TextLineDataset(name)
    return next(iter(values))


@pytest.mark.parametrize("body", [reads, writes, calls_python, prints_to_a_file, looks_up_in_a_file])
def test_a_graph_that_reaches_for_files_or_python_is_refused_unless_code_may_run(tmp_path: Path, body: Any) -> None:
    folder = saved(tmp_path, function(tf.TensorSpec([], tf.string, name="name"))(lambda name: {"y": body(name)}))
    with pytest.raises(LoadFailed, match="--allow-code"):
        loaded(folder)
    assert loaded(folder, allow_code=True).signature.outputs


def test_a_graph_that_is_changed_after_it_was_checked_is_not_loaded(
    line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(line, folder)

    def then_swapped(saved_model: Any, is_stateful: Callable[[str], bool]) -> None:
        refuse_unsafe_operators(saved_model, is_stateful)
        (folder / "saved_model.pb").write_bytes(b"another")

    monkeypatch.setattr("serving.engines.tensorflow.engine.refuse_unsafe_operators", then_swapped)
    assert loaded(folder).infer({"x": np.ones(1, np.float32)}, ["y"])[0][0] == pytest.approx(3, abs=0.1)


def graph_of(op: str, **attributes: Any) -> Any:
    """Return the protocol buffer of a SavedModel with one function of one node."""
    from tensorflow.core.protobuf import saved_model_pb2  # not before the library, which hides Keras

    saved_model = saved_model_pb2.SavedModel()
    function = saved_model.meta_graphs.add().graph_def.library.function.add()
    node = function.node_def.add(op=op)
    for name, value in attributes.items():
        node.attr[name].CopyFrom(value)
    return saved_model


def test_a_print_whose_stream_is_chosen_by_a_caller_is_refused() -> None:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue as value

    for harmless in ({}, {"output_stream": value(s=b"stderr")}):
        refuse_unsafe_operators(graph_of("PrintV2", **harmless), is_stateful)
    for harmful in (value(placeholder="stream"), value(s=b"file:///tmp/x"), value()):
        with pytest.raises(LoadFailed, match="PrintV2"):
            refuse_unsafe_operators(graph_of("PrintV2", output_stream=harmful), is_stateful)


REFUSED = (
    "DecodeProtoV2", "EncodeProto", "ListSnapshotChunksDataset", "TRTEngineOp", "DatasetFromGraph", "Copy",
    "CalibrationStatisticsSaver", "DumpTensor", "FixedUnigramCandidateSampler", "XlaCallModule", "SaveV2", "RestoreV2",
)  # fmt: skip


@pytest.mark.parametrize("op", REFUSED)
def test_operators_that_are_not_known_as_harmless_are_refused(op: str) -> None:
    with pytest.raises(LoadFailed, match=op):
        refuse_unsafe_operators(graph_of(op), is_stateful)


def saves(path: Any) -> Any:
    """Write a checkpoint with chosen bytes to a path that the caller names."""
    with tf.control_dependencies([tf.raw_ops.SaveV2(prefix=path, tensor_names=["a"], shape_and_slices=[""],
                                                    tensors=[tf.constant(b"chosen")])]):  # fmt: skip
        return tf.identity(path)


def restores(path: Any) -> Any:
    """Read the weights of another model."""
    return tf.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[0]


@pytest.mark.parametrize("body", [saves, restores])
def test_a_signature_that_uses_checkpoints_is_refused(tmp_path: Path, body: Any) -> None:
    folder = saved(tmp_path, function(tf.TensorSpec([], tf.string, name="name"))(lambda name: {"y": body(name)}))
    with pytest.raises(LoadFailed, match=r"SaveV2|RestoreV2"):
        loaded(folder)
    assert not list(tmp_path.glob("taken*"))
    if body is saves:  # what the refusal prevents
        written = {"name": np.array(str(tmp_path / "taken"), object)}
        loaded(folder, allow_code=True).infer(written, ["y"])
        assert list(tmp_path.glob("taken*"))


def test_an_initialiser_that_writes_a_checkpoint_is_refused_before_it_runs(tmp_path: Path) -> None:
    target = str(tmp_path / "taken")

    class Resource(tf.saved_model.experimental.TrackableResource):  # type: ignore[misc]
        def _create_resource(self) -> Any:
            return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="x")

        def _initialize(self) -> None:
            tf.print(saves(target))  # without a use, tf.function drops the operator

        def _destroy_resource(self) -> None: ...

    module = tf.Module()
    module.resource = Resource()
    module.graph = function(tf.TensorSpec([], tf.float32, name="x"))(lambda x: {"y": x})
    module.graph.get_concrete_function()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.graph)
    for path in tmp_path.glob("taken*"):
        path.unlink()
    with pytest.raises(LoadFailed, match="SaveV2"):
        loaded(tmp_path / "model")
    assert not list(tmp_path.glob("taken*"))
    assert loaded(tmp_path / "model", allow_code=True).signature.outputs
    assert list(tmp_path.glob("taken*"))  # without the check, loading alone writes


def test_the_savers_function_is_refused_when_something_else_calls_it(line: Path, tmp_path: Path) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel.FromString((line / "saved_model.pb").read_bytes())
    refuse_unsafe_operators(saved_model, is_stateful)
    (meta_graph,) = saved_model.meta_graphs
    library = meta_graph.graph_def.library.function
    saver = next(made for made in library if any(node.op == "SaveV2" for node in made.node_def))
    name = saver.signature.name

    called = saved_model_pb2.SavedModel.FromString(saved_model.SerializeToString())
    served = next(made for made in called.meta_graphs[0].graph_def.library.function if made.signature.name != name)
    call = served.node_def.add(op="StatefulPartitionedCall", name="more")
    call.attr["f"].func.name = name
    direct = saved_model_pb2.SavedModel.FromString(saved_model.SerializeToString())
    direct.meta_graphs[0].graph_def.node.add(op=name, name="more")
    restored = saved_model_pb2.SavedModel.FromString(saved_model.SerializeToString())
    restored.meta_graphs[0].object_graph_def.concrete_functions[name].SetInParent()  # the object graph can name it now
    other = saved_model_pb2.SavedModel.FromString(saved_model.SerializeToString())
    of_saver = next(made for made in other.meta_graphs[0].graph_def.library.function if made.signature.name == name)
    of_saver.node_def.add(op="WriteFile", name="more")
    for changed, found in ((called, "SaveV2"), (direct, "SaveV2"), (restored, "SaveV2"), (other, "WriteFile")):
        with pytest.raises(LoadFailed, match=found):
            refuse_unsafe_operators(changed, is_stateful)


def saved_by_tensorflow_1(folder: Path, served: Callable[[Any], Any], initialises: Callable[[], Any] | None) -> Path:
    """Return a folder with a SavedModel of TensorFlow 1: no object graph, the saver's nodes in the main graph."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        weight = v1.get_variable("weight", initializer=3.0)
        y = served(weight * x)
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder = v1.saved_model.Builder(str(folder / "model"))
        init = initialises() if initialises is not None else None
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature}, main_op=init)
        builder.save()
    return folder / "model"


def test_a_model_of_tensorflow_1_is_served_with_the_nodes_of_its_saver(tmp_path: Path) -> None:
    folder = saved_by_tensorflow_1(tmp_path, lambda y: y, None)
    assert loaded(folder).infer({"x": np.ones(2, np.float32)}, ["y"])[0].tolist() == [3.0, 3.0]


def test_a_model_of_tensorflow_1_that_uses_checkpoints_elsewhere_is_refused(tmp_path: Path) -> None:
    def served(y: Any) -> Any:
        with tf.control_dependencies([saves(tf.constant(str(tmp_path / "taken")))]):
            return tf.identity(y)

    def initialises() -> Any:
        with tf.control_dependencies([restores(tf.constant(str(tmp_path / "of another")))]):
            return tf.no_op()

    with pytest.raises(LoadFailed, match="SaveV2"):
        loaded(saved_by_tensorflow_1(tmp_path / "served", served, None))
    with pytest.raises(LoadFailed, match="RestoreV2"):
        loaded(saved_by_tensorflow_1(tmp_path / "initialises", lambda y: y, initialises))
    from tensorflow.core.protobuf import saved_model_pb2

    path = saved_by_tensorflow_1(tmp_path / "saver", lambda y: y, None) / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    nodes = {node.name: node for node in saved_model.meta_graphs[0].graph_def.node}
    saver = saved_model.meta_graphs[0].saver_def
    next(node for node in nodes.values() if node.op == "RestoreV2").input[0] = "weight/initial_value"  # another path
    with pytest.raises(LoadFailed, match="RestoreV2"):
        refuse_unsafe_operators(saved_model, is_stateful)
    again = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    nodes = {node.name: node for node in again.meta_graphs[0].graph_def.node}
    writer = next(node for node in nodes.values() if node.op == "SaveV2")
    nodes[saver.restore_op_name].input.append(f"^{writer.name}")  # restoring, which loading does, would write
    with pytest.raises(LoadFailed, match="SaveV2"):
        refuse_unsafe_operators(again, is_stateful)


def test_a_graph_that_prints_to_the_log_is_served(tmp_path: Path) -> None:
    def prints(name: Any) -> Any:
        with tf.control_dependencies([tf.print(name)]):
            return tf.identity(name)

    folder = saved(tmp_path, function(tf.TensorSpec([], tf.string, name="name"))(lambda name: {"y": prints(name)}))
    assert loaded(folder).infer({"name": np.array(b"x", dtype=object)}, ["y"])[0] == b"x"


def test_what_is_no_saved_model_is_refused_in_one_line_without_places(line: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for content in (
        b"",
        b"nonsense",
        (line / "saved_model.pb").read_bytes()[:-100],
        (line / "saved_model.pb").read_bytes(),
    ):
        (folder / "saved_model.pb").write_bytes(content)  # the last one has no variables
        with pytest.raises(LoadFailed) as error:
            loaded(folder)
        assert "\n" not in str(error.value) and str(folder) not in str(error.value).replace(folder.as_uri(), "")

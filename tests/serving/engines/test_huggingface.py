"""Folders of Hugging Face: each task against the same numbers in NumPy, and folders that cannot be served."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Cancellation, EngineOptions
from serving.engines.base.errors import Cancelled, InputRefused, LoadFailed, MissingEngine
from serving.engines.base.registry import find_format
from serving.engines.huggingface import images, pytorch
from serving.engines.huggingface.engine import AT_ONCE, HuggingFaceEngine, as_objects, load
from serving.engines.huggingface.tasks import LabelledToken, group_entities
from serving.engines.layouts.detect import find_layout
from tests.support.huggingface_folders import (
    ROOM,
    SIZE,
    WORDS,
    Numbers,
    artifact,
    classifier,
    config,
    embedder,
    image_graph,
    text_graph,
    vector_graph,
    write,
)
from tests.support.small_llama import safetensors

Load = Callable[[dict[str, Any]], HuggingFaceEngine]
ENTITIES = ["O", "B-PER", "I-PER", "B-LOC"]
POOLING = {"word_embedding_dimension": SIZE, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Load]:
    engines: list[HuggingFaceEngine] = []

    def make(files: dict[str, Any]) -> HuggingFaceEngine:
        engines.append(load(artifact(write(tmp_path / str(len(engines)), files)), EngineOptions()))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def texts(*values: str | bytes) -> Tensor:
    return as_objects(values)


def softmax(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def test_texts_get_the_label_of_the_largest_share(loaded: Load) -> None:
    numbers = Numbers(3)
    engine = loaded(classifier(numbers, ["bad", "neutral", "good"]))
    assert engine.signature.platform == "huggingface_text-classification"
    assert engine.signature.default_outputs == ("label", "score")
    # more than are computed at once, of different lengths, as strings and as bytes
    sent = [WORDS[at % len(WORDS)] for at in range(AT_ONCE + 3)]
    found = engine.infer({"text": texts(*sent[:-1], sent[-1].encode())}, ["label", "score", "probabilities", "tokens"])
    expected = softmax(np.array([numbers.of_text(text) for text in sent]))
    np.testing.assert_allclose(found[2], expected, rtol=1e-5)
    np.testing.assert_allclose(found[1], expected.max(axis=-1), rtol=1e-5)
    assert found[0].tolist() == [["bad", "neutral", "good"][at] for at in expected.argmax(axis=-1)]
    assert found[3].tolist() == [len(numbers.ids(text)) for text in sent]
    assert len(set(found[0])) > 1


def test_texts_are_cut_to_the_length_of_the_model(loaded: Load) -> None:
    numbers = Numbers(2)
    engine = loaded(classifier(numbers, ["a", "b"]))
    long = "the cat sat on the mat a good film a bad film"
    ids = numbers.ids(long)
    cut = [*ids[: ROOM - 1], ids[-1]]
    assert len(ids) > ROOM
    (shares, count) = engine.infer({"text": texts(long)}, ["probabilities", "tokens"])
    np.testing.assert_allclose(shares[0], softmax(numbers.vectors[cut].mean(axis=0) @ numbers.weights), rtol=1e-5)
    assert count.tolist() == [ROOM]


def test_no_rows_are_no_results(loaded: Load) -> None:
    engine = loaded(classifier(Numbers(2), ["a", "b"]))
    label, shares = engine.infer({"text": texts()}, ["label", "probabilities"])
    assert label.shape == (0,) and shares.shape == (0, 2) and shares.dtype == np.float32


@pytest.mark.parametrize(
    ("labels", "more", "expected"),
    [
        (["x"], {}, lambda logits: 1 / (1 + np.exp(-logits))),
        (["x"], {"problem_type": "regression"}, lambda logits: logits),
        (
            ["x"],
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            lambda logits: logits,
        ),
        (["x", "y"], {"problem_type": "multi_label_classification"}, lambda logits: 1 / (1 + np.exp(-logits))),
        (["x", "y"], {}, softmax),
    ],
)
def test_the_configuration_gives_the_activation(
    labels: list[str], more: dict[str, Any], expected: Callable[[Any], Any], loaded: Load
) -> None:
    numbers = Numbers(len(labels))
    engine = loaded(classifier(numbers, labels, **more))
    (found,) = engine.infer({"text": texts("a good film"), "text_pair": texts("a bad film")}, ["probabilities"])
    np.testing.assert_allclose(found[0], expected(numbers.of_text("a good film", "a bad film")), rtol=1e-5)


def test_labels_without_names_are_numbered(loaded: Load) -> None:
    files = classifier(Numbers(2), [])
    files["config.json"] = config("BertForSequenceClassification")
    assert loaded(files).infer({"text": texts("a")}, ["label"])[0][0] in ("LABEL_0", "LABEL_1")


def test_entities_have_their_place_in_the_text(loaded: Load) -> None:
    numbers = Numbers(len(ENTITIES))
    anna, berlin = (numbers.ids(word)[1] for word in ("anna", "berlin"))
    assert numbers.tokenizer.id_to_token(anna) == "anna" and numbers.tokenizer.id_to_token(berlin) == "berlin"
    numbers.weights[:] = np.eye(SIZE, dtype=np.float32)
    numbers.vectors[:] = [5, 0, 0, 0]
    numbers.vectors[anna], numbers.vectors[berlin] = [0, 5, 0, 0], [0, 0, 0, 5]
    engine = loaded(
        {
            "config.json": config("BertForTokenClassification", ENTITIES),
            "tokenizer.json": numbers.tokenizer,
            "model_quantized.onnx": text_graph(numbers, per_token=True),
        }
    )
    found, counts = engine.infer({"text": texts("Anna lives in Berlin", "a film")}, ["entities", "tokens"])
    share = float(softmax(np.array([5.0, 0, 0, 0]))[0])
    assert json.loads(found[1]) == [] and counts.tolist() == [6, 4]
    assert json.loads(found[0]) == [
        {"entity_group": "PER", "score": pytest.approx(share), "word": "Anna", "start": 0, "end": 4},
        {"entity_group": "LOC", "score": pytest.approx(share), "word": "Berlin", "start": 14, "end": 20},
    ]


def test_adjacent_tokens_of_a_label_are_one_entity() -> None:
    text = "New York and Anna Lee Bo x"
    places = [(0, 3), (4, 8), (9, 12), (13, 17), (18, 21), (22, 24), (25, 26)]
    labels = ["I-LOC", "I-LOC", "O", "B-PER", "I-PER", "B-PER", "MISC"]
    tokens = [
        LabelledToken(label, 0.5 + at / 10, *place)
        for at, (label, place) in enumerate(zip(labels, places, strict=True))
    ]
    found = group_entities(text, tokens)
    assert [(one.entity_group, one.word) for one in found] == [
        ("LOC", "New York"), ("PER", "Anna Lee"), ("PER", "Bo"), ("MISC", "x"),
    ]  # fmt: skip
    assert found[0].score == pytest.approx(0.55)


def test_a_mask_gets_the_most_likely_tokens(loaded: Load) -> None:
    numbers = Numbers(tokenizer_size())
    numbers.weights[:] = numbers.vectors.T
    engine = loaded(
        {
            "config.json": config("BertForMaskedLM"),
            "tokenizer.json": numbers.tokenizer,
            "tokenizer_config.json": {"mask_token": {"content": "[MASK]"}, "pad_token": "[PAD]"},
            "model.onnx": text_graph(numbers, per_token=True),
        }
    )
    text = "the [MASK] sat"
    place = numbers.ids(text).index(numbers.tokenizer.token_to_id("[MASK]") or 0)
    shares = softmax(numbers.of_tokens(text)[place])
    order = np.argsort(-shares)
    wanted = ["token", "score", "candidates"]
    token, score, candidates = engine.infer({"text": texts(text, text), "top_k": np.array([2])}, wanted)
    made = json.loads(candidates[1])
    assert [one["token"] for one in made] == order[:2].tolist()
    assert [one["score"] for one in made] == pytest.approx(shares[order[:2]].tolist())
    assert token[0] == numbers.tokenizer.decode([order[0]]) == made[0]["token_str"]
    assert made[0]["sequence"] == numbers.tokenizer.decode(
        [order[0] if at == place else i for at, i in enumerate(numbers.ids(text))]
    )
    np.testing.assert_allclose(score, [shares.max()] * 2, rtol=1e-5)
    (five,) = engine.infer({"text": texts(text)}, ["candidates"])
    assert len(json.loads(five[0])) == 5
    with pytest.raises(InputRefused, match=r"2 mask tokens: send one \[MASK\]"):
        engine.infer({"text": texts("[MASK] [MASK]")}, wanted)
    with pytest.raises(InputRefused, match="top_k is not a number from 1"):
        engine.infer({"text": texts(text), "top_k": np.array([0])}, wanted)


def tokenizer_size() -> int:
    return Numbers(1).tokenizer.get_vocab_size()


def test_embeddings_are_the_normalized_mean_of_the_tokens(loaded: Load) -> None:
    numbers = Numbers(1)
    engine = loaded(embedder(numbers))
    (output, counts) = engine.signature.outputs
    assert output.shape == (ANY, SIZE) and engine.signature.default_outputs == ("embedding",)
    found, tokens = engine.infer({"text": texts(*WORDS)}, ["embedding", counts.name])
    means = [numbers.vectors[numbers.ids(text)].mean(axis=0) for text in WORDS]
    np.testing.assert_allclose(found, [mean / np.linalg.norm(mean) for mean in means], rtol=1e-5)
    assert tokens.tolist() == [len(numbers.ids(text)) for text in WORDS]
    with pytest.raises(InputRefused, match="not UTF-8"):
        engine.infer({"text": texts(b"\xff")}, ["embedding"])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("cls_token", lambda vectors: vectors[0]), ("max_tokens", lambda vectors: vectors.max(axis=0))],
)
def test_sentence_transformers_name_the_pooling_and_a_prompt(
    mode: str, expected: Callable[[Any], Any], loaded: Load
) -> None:
    numbers = Numbers(1)
    engine = loaded(
        {
            **embedder(numbers),
            "config.json": config("BertForMaskedLM"),  # the modules decide
            "model.onnx": vector_graph(numbers, "token_embeddings"),
            "modules.json": MODULES,
            "1_Pooling/config.json": {f"pooling_mode_{mode}": True, "pooling_mode_mean_tokens": False},
            "sentence_bert_config.json": {"max_seq_length": 6},
            "config_sentence_transformers.json": {"prompts": {"q": "the cat "}, "default_prompt_name": "q"},
        }
    )
    found, tokens = engine.infer({"text": texts("sat", "sat on the mat a film")}, ["embedding", "tokens"])
    np.testing.assert_allclose(found[0], expected(numbers.vectors[numbers.ids("the cat sat")]), rtol=1e-5)
    assert tokens.tolist() == [5, 6]


def test_embeddings_of_matryoshka_models_may_be_shortened(loaded: Load) -> None:
    numbers = Numbers(1)
    engine = loaded(embedder(numbers, is_matryoshka=True))
    assert engine.signature.optional_inputs == {"dimensions"}
    (found,) = engine.infer({"text": texts("a film", "a cat"), "dimensions": np.array([2, 2])}, ["embedding"])
    mean = numbers.vectors[numbers.ids("a film")].mean(axis=0)[:2]
    np.testing.assert_allclose(found[0], mean / np.linalg.norm(mean), rtol=1e-5)
    with pytest.raises(InputRefused, match="dimensions is not one number from 1 to 4"):
        engine.infer({"text": texts("a"), "dimensions": np.array([5])}, ["embedding"])
    with pytest.raises(InputRefused, match="'dimensions' has 2 values for 3 rows"):
        engine.infer({"text": texts("a", "b", "c"), "dimensions": np.array([1, 1])}, ["embedding"])


def test_a_cancelled_request_ends(loaded: Load) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        loaded(embedder(Numbers(1))).infer({"text": texts("a")}, ["embedding"], cancellation)


PROCESSOR = {
    "do_resize": True, "size": {"height": 8, "width": 8}, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.4],
}  # fmt: skip
COLOURS = np.array([[2, 0], [0, 1], [1, 1]], np.float32)


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (20, 10), kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, kind)
    return content.getvalue()


def image_files(**processor: Any) -> dict[str, Any]:
    return {
        "config.json": config("ViTForImageClassification", ["red", "green"]),
        "preprocessor_config.json": {**PROCESSOR, **processor},
        "model.onnx": image_graph(COLOURS),
    }


def test_images_get_a_label(loaded: Load) -> None:
    engine = loaded(image_files())
    sent: list[str | bytes] = [picture((250, 0, 0)), base64.b64encode(picture((0, 250, 0))).decode()]
    label, score, shares = engine.infer({"image": texts(*sent)}, ["label", "score", "probabilities"])
    values = (np.array([[250, 0, 0], [0, 250, 0]]) / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.4]
    expected = softmax(values @ COLOURS)
    assert label.tolist() == ["red", "green"]
    np.testing.assert_allclose(shares, expected, rtol=1e-4)
    np.testing.assert_allclose(score, expected.max(axis=-1), rtol=1e-4)


@pytest.mark.parametrize(
    ("processor", "shape"),
    [
        ({}, (3, 8, 8)),
        ({"size": 6}, (3, 6, 6)),
        ({"size": {"shortest_edge": 8}}, (3, 8, 16)),
        ({"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": {"height": 4, "width": 6}}, (3, 4, 6)),
        ({"size": {"shortest_edge": 8}, "crop_pct": 0.875}, (3, 8, 8)),
        ({"do_resize": False, "do_center_crop": True, "crop_size": 40}, (3, 40, 40)),
    ],
)
def test_the_processor_gives_the_size(processor: dict[str, Any], shape: tuple[int, ...]) -> None:
    made = images.read_processor({**PROCESSOR, **processor}, "uri")
    assert made.pixels(picture((1, 2, 3))).shape == shape


def test_what_is_no_image_is_refused(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded(image_files())
    for content, reason in (
        (b"no image", "cannot be decoded"),
        (picture((1, 2, 3))[:40], "cannot be decoded"),
        (picture((1, 2, 3), kind="TIFF"), "cannot be decoded .*: send one of JPEG, PNG"),
        ("no base64!", "text but not base64"),
        (b"", "an image is empty"),
    ):
        with pytest.raises(InputRefused, match=reason):
            engine.infer({"image": texts(content)}, ["label"])
    monkeypatch.setattr(images, "MAX_PIXELS", 199)
    with pytest.raises(InputRefused, match="20x10 pixels, more than 199"):
        engine.infer({"image": texts(picture((1, 2, 3)))}, ["label"])


def test_a_folder_with_its_names_and_model_type_is_found(tmp_path: Path) -> None:
    files = classifier(Numbers(2), ["a", "b"])
    folder = artifact(write(tmp_path / "hf", files))
    assert find_layout(folder, "m").format == "huggingface"
    plain = artifact(write(tmp_path / "plain", {**files, "config.json": {"architectures": ["X"]}}))
    assert find_layout(plain, "m").format == "" and find_format("", plain.names()).name == "onnx"
    broken = artifact(write(tmp_path / "broken", {**files, "config.json": b"{"}))
    assert find_layout(broken, "m").format == ""
    bare = {name: content for name, content in files.items() if name != "onnx/model.onnx"} | {"model.safetensors": b""}
    assert find_layout(artifact(write(tmp_path / "bare", bare)), "m").format == "huggingface"
    bare["config.json"] = config("LlamaForCausalLM")
    generates = artifact(write(tmp_path / "generates", bare))
    assert find_layout(generates, "m").format == "" and find_format("", generates.names()).name == "vllm"
    for missing in ("tokenizer.json", "onnx/model.onnx"):
        left = {name: content for name, content in files.items() if name != missing}
        assert find_layout(artifact(write(tmp_path / Path(missing).name, left)), "m").format == ""
    described = artifact(write(tmp_path / "mlflow", {**files, "MLmodel": b"flavors: {}"}))
    assert find_layout(described, "m").format == ""


def damaged(**changes: Any) -> dict[str, Any]:
    """The files of a classification with some replaced; None leaves a file out."""
    names = {"config": "config.json", "tokenizer": "tokenizer.json", "model": "onnx/model.onnx"}
    files = {**classifier(Numbers(2), ["a", "b"]), **{names.get(name, name): one for name, one in changes.items()}}
    return {name: content for name, content in files.items() if content is not None}


def weights(**changes: Any) -> dict[str, Any]:
    """The files of a classification with weights in place of an ONNX export."""
    return damaged(**{"model": None, "model.safetensors": WEIGHTS, **changes})


KIND = "BertForSequenceClassification"
WEIGHTS = safetensors({"classifier.weight": np.zeros((2, 3), np.float32)})
SENTENCE = {"modules.json": MODULES, "model": vector_graph(Numbers(1))}


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (damaged(config=None), "has no file config.json: name the folder"),
        (damaged(config=b"{"), "config.json is not valid JSON"),
        (damaged(config=b"\xff"), "config.json is not valid JSON"),
        (damaged(config=[1]), "config.json is not a JSON object"),
        (damaged(config=b'"' + b"x" * (5 << 20) + b'"'), "config.json has 52.* bytes, more than 4194304"),
        (damaged(config={**config(KIND), "auto_map": {"AutoModel": "m.M"}}), "auto_map, code of the model's author"),
        (damaged(config={"architectures": []}), "has no architectures"),
        (damaged(config=config("LlamaForCausalLM")), "no task for the architecture 'LlamaForCausalLM': use one of"),
        (damaged(config=config(KIND, ["a", "b", "c"])), r"3 labels, and the logits have the shape \[1, 2\]"),
        (damaged(config=config(KIND, id2label={"1": "a"})), "id2label in config.json is not an object of labels"),
        (damaged(config=config(KIND, id2label=["a"])), "id2label in config.json is not an object of labels"),
        (damaged(config=config(KIND, num_labels=-1)), "num_labels in config.json is not a number"),
        (damaged(config=config(KIND, ["a"], sbert_ce_default_activation_function="x.Tanh")), "unknown activation"),
        (damaged(config=config(KIND, ["a", "b"], max_position_embeddings=3)), "no room for 3 special ones"),
        (damaged(config=config("BertForTokenClassification", ["a", "b"])), r"logits have the shape \[1, 2\]"),
        (damaged(config=config("BertForMaskedLM")), r"logits have the shape \[1, 2\], not one for each token"),
        (damaged(config=config("BertModel")), "the outputs logits, and none of last_hidden_state"),
        (damaged(config=config("ViTForImageClassification")), "has no file preprocessor_config.json"),
        (damaged(tokenizer=None), "has no file tokenizer.json, .*: save the fast tokenizer"),
        (damaged(tokenizer=b"{}"), "tokenizer.json cannot be loaded"),
        (damaged(model=b"broken"), "ONNX Runtime cannot load model.onnx"),
        (damaged(model=None), r"has no weights \(\*.safetensors\)"),
        (weights(**{"model.safetensors": b""}), "model.safetensors has 0 bytes and no header"),
        (weights(**{"model.safetensors": None, "pytorch_model.bin": b""}), "is pickled, .* never read: convert it by"),
        (weights(**{"model.safetensors": None, "model-00001-of-00002.safetensors": WEIGHTS}), "but not model-00002"),
        (weights(**{"adapter_config.json": {}}), "is an adapter .adapter_config.json.: merge it"),
        (weights(config=config(KIND, quantization_config={"bits": 4})), "has quantized weights"),
        (damaged(model=None, **{"a.onnx": b"", "b.onnx": b""}), r"has 2 .onnx files: name the one to serve model.onnx"),
        (damaged(model=text_graph(Numbers(2), per_token=False, batch=1)), "has the fixed shape"),
        (damaged(model=text_graph(Numbers(2), per_token=False, names=("bbox", "input_ids", "attention_mask"))),
         "the input 'bbox'"),
        (damaged(model=text_graph(Numbers(2, 3), per_token=False)), "the model fails on the tokens of tokenizer.json"),
        (damaged(**{"modules.json": {}}), "modules.json is not a list of modules"),
        (damaged(**{"modules.json": [*MODULES, {"type": "a.Dense"}]}), "modules Transformer, Pooling, Dense: only"),
        (damaged(**SENTENCE), "has no file 1_Pooling/config.json"),
        (damaged(**SENTENCE, **{"1_Pooling/config.json": {"pooling_mode_lasttoken": True}}),
         "the pooling pooling_mode_last"),
        (damaged(**SENTENCE, **{"1_Pooling/config.json": {}}), "the pooling none"),
        ({**image_files(), "preprocessor_config.json": {}}, "not one of a known image processor .'size'"),
        (image_files(do_flip_channel_order=True), "unknown step 'do_flip_channel_order'"),
        (image_files(do_center_crop=True, crop_size=4, crop_pct=0.9), "both a crop_pct and a crop_size"),
        (image_files(image_std=[1, 1]), "2 channels instead of 3"),
        (image_files(image_std=[1, 0, 1]), "image_std has 0"),
        (image_files(size={"height": 9999, "width": 8}), "not from 1 to 4096 pixels"),
        (image_files(resample=77), "77 is not a valid Resampling"),
        (image_files(do_resize=False), "neither a size nor a crop_size"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_with_the_reason(files: dict[str, Any], reason: str, loaded: Load) -> None:
    with pytest.raises(LoadFailed, match=reason):
        loaded(files)


def test_weights_without_their_library_name_the_extra(monkeypatch: pytest.MonkeyPatch, loaded: Load) -> None:
    monkeypatch.setattr(pytorch, "_LIBRARIES", ("no_such_library",))
    with pytest.raises(MissingEngine, match=r"needs no_such_library, .*knodel\[huggingface-torch\].*; or export it"):
        loaded(weights())

"""Folders of Hugging Face, as pipelines: texts and images in, labels, entities, candidates and embeddings out.

The task follows from `config.json`. The export in ONNX computes, by the engine of the format onnx; without one,
PyTorch computes with the weights (`*.safetensors`). The tokenizer is `tokenizer.json`. No code of the folder runs, and
no pickles are read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import EngineError, InputRefused, LoadFailed, short_reason
from serving.engines.base.tensors import as_text
from serving.engines.huggingface import tasks
from serving.engines.huggingface.config import (
    CLASSIFY_IMAGE,
    CLASSIFY_TEXT,
    CLASSIFY_WORDS,
    CONFIG,
    EMBEDDINGS,
    FILL_MASK,
    MAX_TOKENIZER,
    PREPROCESSOR,
    TOKENIZER,
    FolderConfig,
    read_bounded,
    read_config,
    read_object,
)
from serving.engines.huggingface.graph import ModelGraph, load_engine
from serving.engines.huggingface.tokenizer import TextTokenizer, Tokens

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "huggingface_{task}"
TEXT, PAIR, IMAGE = "text", "text_pair", "image"
LABEL, SCORE, PROBABILITIES, TOKENS = "label", "score", "probabilities", "tokens"
EMBEDDING, DIMENSIONS = "embedding", "dimensions"
ENTITIES, TOKEN, CANDIDATES, TOP_K = "entities", "token", "candidates", "top_k"
DEFAULT_TOP_K: Final = 5
MAX_TOP_K: Final = 1000
AT_ONCE: Final = 32
"""Texts or images of one run of the model, which bounds its memory. A cancelled request ends between two runs."""

_LOGITS: Final = ("logits",)
_VECTORS: Final = ("last_hidden_state", "token_embeddings")
_SENTENCE: Final = "sentence_embedding"
_PIXELS: Final = "pixel_values"
_TEXT_FEEDS: Final = ("input_ids", "attention_mask", "token_type_ids")
_TEXTS: Final = TensorSpec(TEXT, BYTES, (ANY,))
_COUNTS: Final = TensorSpec(TOKENS, "INT64", (ANY,))
_LABELLED: Final = (TensorSpec(LABEL, BYTES, (ANY,)), TensorSpec(SCORE, "FP32", (ANY,)))
_PROBE: Final = "a"
_RANK: Final = {CLASSIFY_WORDS: 3, FILL_MASK: 3}
Results = dict[str, Any]


def load(artifact: Artifact, options: EngineOptions) -> HuggingFaceEngine:
    """Load the folder, and run its model once. Raises LoadFailed, MissingEngine, StorageError."""
    names = artifact.names()
    if artifact.content is not None or CONFIG not in names:
        raise LoadFailed(f"{artifact.uri} has no file {CONFIG}: name the folder of a model of Hugging Face")
    config = read_config(artifact)
    file = PREPROCESSOR if config.task == CLASSIFY_IMAGE else TOKENIZER
    if file not in names:
        raise LoadFailed(f"{artifact.uri} has no file {file}, which {config.task} needs: {_remedy(file)}")
    make = _ENGINES[config.task]
    engine = load_engine(artifact, options)
    try:
        return make(artifact, config, engine_graph(engine, config.task, artifact.uri))
    except BaseException:
        engine.close()
        raise


def engine_graph(engine: Any, task: str, uri: str) -> ModelGraph:
    """Return the model with the inputs and the output of the task. Raises LoadFailed."""
    if task == CLASSIFY_IMAGE:
        return ModelGraph(engine, (_PIXELS,), _LOGITS, uri)
    return ModelGraph(engine, _TEXT_FEEDS, (*_VECTORS, _SENTENCE) if task == EMBEDDINGS else _LOGITS, uri)


class HuggingFaceEngine(BaseEngine):
    """The base class of the engines, one for each task. Rows are computed `AT_ONCE` at a time."""

    def __init__(self, graph: ModelGraph, config: FolderConfig, signature: Signature) -> None:
        super().__init__(signature)
        self._graph = graph
        self._config = config

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the results of each row. Raises InputRefused, InferenceFailed, Cancelled."""
        rows = {name: _rows(name, tensor) for name, tensor in inputs.items()}
        count = len(rows[self.signature.inputs[0].name])
        columns = {name: _aligned(name, tensor, count) for name, tensor in rows.items()}
        parts = [
            self._compute({name: column[at : at + AT_ONCE] for name, column in columns.items()}, outputs, cancellation)
            for at in range(0, count, AT_ONCE)
        ]
        return [self._joined(name, [part[name] for part in parts]) for name in outputs]

    def close(self) -> None:
        """Release the model."""
        self._graph.close()

    @abstractmethod
    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        """Return at least the named outputs for at most `AT_ONCE` rows."""

    def _joined(self, name: str, parts: Sequence[Any]) -> Tensor:
        (spec,) = [spec for spec in self.signature.outputs if spec.name == name]
        dtype = DATATYPES[spec.datatype].dtype
        if not parts:
            return np.empty([max(size, 0) for size in spec.shape or ()], dtype)
        if spec.datatype == BYTES:
            return as_objects([one for part in parts for one in part])
        return np.concatenate(parts).astype(dtype, copy=False)


class _TextEngine(HuggingFaceEngine):
    """An engine with a tokenizer."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph, signature: Signature) -> None:
        content = read_bounded(artifact, TOKENIZER, MAX_TOKENIZER)
        self._tokenizer = TextTokenizer(content, config, artifact.uri)
        super().__init__(graph, config, signature)

    def _probe(self, uri: str) -> tuple[int, ...]:
        """Run the model once and return the shape of its output. Raises LoadFailed."""
        try:
            return self._graph.run(self._tokenizer.encode([_PROBE]).feeds).shape
        except EngineError as error:
            raise LoadFailed(f"{uri}: the model fails on the tokens of {TOKENIZER} ({short_reason(error)})") from error

    def _encode(self, rows: Mapping[str, Tensor]) -> tuple[list[str], Tokens]:
        texts = _texts(rows[TEXT])
        return texts, self._tokenizer.encode(texts, _texts(rows[PAIR]) if PAIR in rows else None)


class TextClassifier(_TextEngine):
    """A class or a number for each text, or pair of texts."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph) -> None:
        outputs = (*_LABELLED, _probabilities(config), _COUNTS)
        inputs = (_TEXTS, TensorSpec(PAIR, BYTES, (ANY,)))
        signature = _signature(config, inputs, outputs, (PROBABILITIES, TOKENS), (PAIR,))
        super().__init__(artifact, config, graph, signature)
        _check_labels(config, self._probe(artifact.uri), artifact.uri)

    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        _, tokens = self._encode(rows)
        logits = self._graph.run(tokens.feeds, cancellation)
        return {**_labelled(logits, self._config), TOKENS: tokens.counts}


class TokenClassifier(_TextEngine):
    """The entities of each text, as JSON."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph) -> None:
        outputs = (TensorSpec(ENTITIES, BYTES, (ANY,)), _COUNTS)
        super().__init__(artifact, config, graph, _signature(config, (_TEXTS,), outputs, (TOKENS,)))
        _check_labels(config, self._probe(artifact.uri), artifact.uri)

    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        texts, tokens = self._encode(rows)
        found = tasks.scores(self._graph.run(tokens.feeds, cancellation), self._config.activation)
        entities = [self._entities(text, tokens, at, found[at]) for at, text in enumerate(texts)]
        return {ENTITIES: entities, TOKENS: tokens.counts}

    def _entities(self, text: str, tokens: Tokens, at: int, scores: tasks.Floats) -> str:
        encoding = tokens.encodings[at]
        labels = scores.argmax(axis=-1)
        found = [
            tasks.LabelledToken(self._config.labels[labels[i]], float(scores[i, labels[i]]), start, end)
            for i, (start, end) in enumerate(encoding.offsets)
            if not encoding.special_tokens_mask[i]
        ]
        return _json(tasks.group_entities(text, found))


class MaskFiller(_TextEngine):
    """The most likely token for the mask of each text."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph) -> None:
        outputs = (
            TensorSpec(TOKEN, BYTES, (ANY,)), TensorSpec(SCORE, "FP32", (ANY,)), TensorSpec(CANDIDATES, BYTES, (ANY,)),
            _COUNTS,
        )  # fmt: skip
        inputs = (_TEXTS, TensorSpec(TOP_K, "INT64", (ANY,)))
        signature = _signature(config, inputs, outputs, (CANDIDATES, TOKENS), (TOP_K,))
        super().__init__(artifact, config, graph, signature)
        if self._tokenizer.mask_id is None:
            raise LoadFailed(f"{artifact.uri}: {TOKENIZER} has no mask token, which {config.task} needs")
        shape = self._probe(artifact.uri)
        if len(shape) != _RANK[FILL_MASK]:
            raise LoadFailed(f"{artifact.uri}: the logits have the shape {list(shape)}, not one for each token")

    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        _, tokens = self._encode(rows)
        places = [self._mask_of(ids) for ids in tokens.feeds["input_ids"]]
        counts = rows[TOP_K].tolist() if TOP_K in rows else [DEFAULT_TOP_K] * len(places)
        if any(not 0 < count <= MAX_TOP_K for count in counts):
            raise InputRefused(f"{TOP_K} is not a number from 1 to {MAX_TOP_K}")
        logits = self._graph.run(tokens.feeds, cancellation)
        shares = [tasks.softmax(logits[at, place]) for at, place in enumerate(places)]
        best = [tasks.best(share, count) for share, count in zip(shares, counts, strict=True)]
        return {
            TOKEN: [self._tokenizer.text_of(found[:1]) for found in best],
            SCORE: np.array([share[found[0]] for share, found in zip(shares, best, strict=True)]),
            CANDIDATES: [
                self._candidates(ids, place, found, share)
                for ids, place, found, share in zip(tokens.feeds["input_ids"], places, best, shares, strict=True)
            ],
            TOKENS: tokens.counts,
        }

    def _mask_of(self, ids: Tensor) -> int:
        (places,) = np.nonzero(ids == self._tokenizer.mask_id)
        if len(places) != 1:
            token = self._tokenizer.token_of(self._tokenizer.mask_id or 0)
            raise InputRefused(f"a text has {len(places)} mask tokens: send one {token} in each")
        return int(places[0])

    def _candidates(self, ids: Tensor, place: int, found: Sequence[int], share: tasks.Floats) -> str:
        """Return the candidates of a text as a pipeline of transformers has them."""
        made = []
        for token in found:
            filled = [token if at == place else one for at, one in enumerate(ids.tolist())]
            made.append(
                {
                    "score": float(share[token]),
                    "token": token,
                    "token_str": self._tokenizer.text_of([token]),
                    "sequence": self._tokenizer.text_of(filled),
                }
            )
        return _json(made)


class Embedder(_TextEngine):
    """A vector for each text."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph) -> None:
        super().__init__(artifact, config, graph, _signature(config, (_TEXTS,), ()))
        shape = self._probe(artifact.uri)
        self._is_pooled = graph.output == _SENTENCE
        if len(shape) != (2 if self._is_pooled else 3):
            raise LoadFailed(
                f"{artifact.uri}: the output {graph.output!r} has the shape {list(shape)}: export it again"
            )
        size = shape[-1]
        extra = (TensorSpec(DIMENSIONS, "INT64", (ANY,)),) if config.any_size else ()
        embedding = TensorSpec(EMBEDDING, "FP32", (ANY, ANY if extra else size))
        names = tuple(spec.name for spec in extra)
        self._signature = _signature(config, (_TEXTS, *extra), (embedding, _COUNTS), (TOKENS,), names)
        self._size = size

    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        pooling = self._config.pooling
        tokens = self._tokenizer.encode([pooling.prompt + text for text in _texts(rows[TEXT])])
        vectors = self._graph.run(tokens.feeds, cancellation)
        if not self._is_pooled:
            vectors = tasks.pool(vectors, tokens.mask, pooling.mode)
        if DIMENSIONS in rows:
            vectors = vectors[:, : self._dimensions(rows[DIMENSIONS])]
        return {EMBEDDING: tasks.normalized(vectors) if pooling.normalize else vectors, TOKENS: tokens.counts}

    def _dimensions(self, given: Tensor) -> int:
        wanted = set(given.tolist())
        if len(wanted) != 1 or not 0 < (size := wanted.pop()) <= self._size:
            raise InputRefused(f"{DIMENSIONS} is not one number from 1 to {self._size}")
        return int(size)


class ImageClassifier(HuggingFaceEngine):
    """A class for each image."""

    def __init__(self, artifact: Artifact, config: FolderConfig, graph: ModelGraph) -> None:
        from serving.engines.huggingface.images import read_processor  # Pillow; text models do not pay for it

        self._processor = read_processor(read_object(artifact, PREPROCESSOR), artifact.uri)
        inputs = (TensorSpec(IMAGE, BYTES, (ANY,)),)
        outputs = (*_LABELLED, _probabilities(config))
        super().__init__(graph, config, _signature(config, inputs, outputs, (PROBABILITIES,)))
        try:
            shape = graph.run({_PIXELS: self._processor.blank()[None]}).shape
        except EngineError as error:
            reason = short_reason(error)
            raise LoadFailed(f"{artifact.uri}: the model fails on images by {PREPROCESSOR} ({reason})") from error
        _check_labels(config, shape, artifact.uri)

    def _compute(
        self, rows: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Results:
        if not all(rows[IMAGE]):
            raise InputRefused("an image is empty")
        pixels = [self._processor.pixels(content) for content in rows[IMAGE]]
        if len({one.shape for one in pixels}) != 1:
            raise InputRefused("the images have different shapes: send them one at a time")
        return _labelled(self._graph.run({_PIXELS: np.stack(pixels)}, cancellation), self._config)


_ENGINES: Final[Mapping[str, Callable[[Any, FolderConfig, ModelGraph], HuggingFaceEngine]]] = {
    CLASSIFY_TEXT: TextClassifier,
    CLASSIFY_WORDS: TokenClassifier,
    FILL_MASK: MaskFiller,
    EMBEDDINGS: Embedder,
    CLASSIFY_IMAGE: ImageClassifier,
}


def as_objects(values: Sequence[Any]) -> Tensor:
    """Return a BYTES tensor of strings."""
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _signature(
    config: FolderConfig,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    optional: Sequence[str] = (),
    optional_inputs: Sequence[str] = (),
) -> Signature:
    platform = PLATFORM.format(task=config.task)
    return Signature(platform, inputs, outputs, frozenset(optional), frozenset(optional_inputs))


def _probabilities(config: FolderConfig) -> TensorSpec:
    return TensorSpec(PROBABILITIES, "FP32", (ANY, len(config.labels)), config.labels)


def _labelled(logits: tasks.Floats, config: FolderConfig) -> Results:
    """Return label, score and all scores of each row of logits."""
    found = tasks.scores(logits, config.activation)
    places = found.argmax(axis=-1)
    best = np.take_along_axis(found, places[:, None], axis=-1)[:, 0]
    return {LABEL: [config.labels[place] for place in places], SCORE: best, PROBABILITIES: found}


def _check_labels(config: FolderConfig, shape: tuple[int, ...], uri: str) -> None:
    """Raise LoadFailed unless the logits have one value for each label."""
    if len(shape) != _RANK.get(config.task, 2) or shape[-1] != len(config.labels):
        raise LoadFailed(
            f"{uri}: {CONFIG} has {len(config.labels)} labels, and the logits have the shape {list(shape)}: export the "
            "model again with its own configuration"
        )


def _rows(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor with one value for each row. Raises InputRefused."""
    if tensor.ndim != 1:
        raise InputRefused(f"{name!r} has the shape {list(tensor.shape)}: send one value for each row")
    return tensor


def _aligned(name: str, tensor: Tensor, count: int) -> Tensor:
    """Return a value for each of `count` rows; a single one is for all. Raises InputRefused."""
    if len(tensor) == count:
        return tensor
    if len(tensor) == 1:
        return np.repeat(tensor, count)
    raise InputRefused(f"{name!r} has {len(tensor)} values for {count} rows")


def _texts(tensor: Tensor) -> list[str]:
    """Return texts as strings. Raises InputRefused for bytes that are not UTF-8."""
    found: list[str] = as_text(tensor).tolist()
    return found


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _remedy(file: str) -> str:
    made = "image processor" if file == PREPROCESSOR else "fast tokenizer"
    return f"save the {made} beside the model (save_pretrained)"

"""From logits to results: labels, entities, embeddings, candidates. Pure NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serving.engines.huggingface.config import CLS, IDENTITY, MAX, SIGMOID

Floats = NDArray[np.float32]
OUTSIDE: Final = "O"
"""The label of tokens outside of every entity."""
_BEGIN, _INSIDE = "B-", "I-"
_LEAST: Final = 1e-12  # the least length that a vector is divided by, as in PyTorch


class Entity(msgspec.Struct, frozen=True):
    """A part of a text and its label, as a pipeline of transformers returns it; `start` and `end` in characters."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class LabelledToken(NamedTuple):
    """A token of a text: its best label, the label's score, and its place in characters."""

    label: str
    score: float
    start: int
    end: int


def softmax(logits: Floats) -> Floats:
    """Return probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(logits: Floats) -> Floats:
    """Return the probability of each value by itself; large negative values do not overflow."""
    powers = np.exp(-np.abs(logits))
    found: Floats = np.where(logits >= 0, 1, powers) / (1 + powers)
    return found.astype(np.float32)


def scores(logits: Floats, activation: str) -> Floats:
    """Return the scores of logits by the activation of a configuration."""
    if activation == IDENTITY:
        return logits
    return sigmoid(logits) if activation == SIGMOID else softmax(logits)


def pool(vectors: Floats, mask: NDArray[Any], mode: str) -> Floats:
    """Return one vector for each text of the tokens' vectors [texts, tokens, size]; padding has `mask` 0."""
    if mode == CLS:
        return vectors[:, 0]
    weights = mask[:, :, None].astype(np.float32)
    if mode == MAX:
        largest: Floats = np.where(weights > 0, vectors, -np.inf).max(axis=1)
        return largest
    mean: Floats = (vectors * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), _LEAST)
    return mean


def normalized(vectors: Floats) -> Floats:
    """Return the vectors with the length 1."""
    found: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _LEAST)
    return found


def group_entities(text: str, tokens: Sequence[LabelledToken]) -> list[Entity]:
    """Return the entities of a text: adjacent tokens of one label, by the strategy `simple` of transformers.

    A label may begin with B- or I-; B- begins a new entity. The score is the mean of its tokens'.
    """
    groups: list[list[LabelledToken]] = []
    for token in tokens:
        joins = groups and _tag(groups[-1][-1].label) == _tag(token.label) and not token.label.startswith(_BEGIN)
        if joins:
            groups[-1].append(token)
        else:
            groups.append([token])
    return [_entity(text, group) for group in groups if group[0].label != OUTSIDE]


def best(probabilities: Floats, count: int) -> list[int]:
    """Return the indices of the `count` largest values, the largest first."""
    indices: list[int] = np.argsort(-probabilities, kind="stable")[:count].tolist()
    return indices


def _tag(label: str) -> str:
    return label[len(_BEGIN) :] if label.startswith((_BEGIN, _INSIDE)) else label


def _entity(text: str, group: Sequence[LabelledToken]) -> Entity:
    start, end = group[0].start, group[-1].end
    score = sum(token.score for token in group) / len(group)
    return Entity(_tag(group[0].label), score, text[start:end], start, end)

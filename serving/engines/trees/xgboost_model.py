"""Check the positions in an XGBoost model before the library reads it. Pure.

Trees hold the positions of their nodes, features and groups. XGBoost reads and writes memory at these positions without
bounds checks. A repeated key is rejected, because two readers may choose different values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from serving.engines.base.tensors import IntArray, require, within
from serving.engines.trees import ubjson

MAX_CATEGORIES: Final = 1 << 24  # XGBoost's own limit: FP32 represents whole numbers up to it
_LEAF: Final = -1  # as the left child
_DELETED: Final = (1 << 31) - 1  # as the feature of a node that was pruned
_TREES: Final = "gbtree"
_NODES: Final = ("left_children", "right_children", "parents", "split_indices", "split_conditions", "default_left")
_CATEGORIES: Final = ("categories_nodes", "categories_segments", "categories_sizes")


def vet(content: bytes) -> None:
    """Raise ValueError unless the file is an undamaged model."""
    try:
        model = ubjson.read(content) if ubjson.begins(content) else json.loads(content, object_pairs_hook=_object)
        _vet_learner(model["learner"])
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("the file is not an XGBoost model, or it is damaged") from error


def _vet_learner(learner: Mapping[str, Any]) -> None:
    params, booster = learner["learner_model_param"], learner["gradient_booster"]
    features = _number(params["num_feature"])
    groups = max(1, _number(params["num_class"]), _number(params.get("num_target", "1")))
    if booster["name"] == "gblinear":
        require(len(booster["model"]["weights"]) == (features + 1) * groups)
        return
    trees = booster[_TREES] if booster["name"] == "dart" else booster
    _vet_forest(trees["model"], features, groups)
    if booster["name"] == "dart":
        require(len(booster["weight_drop"]) == len(trees["model"]["trees"]))


def _vet_forest(model: Mapping[str, Any], features: int, groups: int) -> None:
    trees, info = model["trees"], _integers(model["tree_info"])
    require(_number(model["gbtree_model_param"]["num_trees"]) == len(trees) == len(info))
    require(within(info, groups))
    rounds = _integers(model.get("iteration_indptr", []))
    require(within(rounds, len(trees) + 1) and bool((np.diff(rounds) >= 0).all()))
    for tree in trees:
        _vet_tree(tree, features, groups)


def _vet_tree(tree: Mapping[str, Any], features: int, groups: int) -> None:
    """Check the nodes. Each has one parent and the root has none, so that there are no cycles."""
    count = _number(tree["tree_param"]["num_nodes"])
    require(count > 0 and all(len(tree[name]) == count for name in _NODES))
    require(_number(tree["tree_param"].get("size_leaf_vector", "1")) <= groups)
    left, right, parents, split = (_integers(tree[name]) for name in _NODES[:4])
    require(within(parents[1:], count))
    live = split != _DELETED
    places = np.flatnonzero((left != _LEAF) & live)
    for children in (left[places], right[places]):
        require(within(children - 1, count - 1))  # none is the root
        require(bool((parents[children] == places).all() and live[children].all()))
    require(bool(live[0]) and within(split[places], features))
    _vet_categories(tree, count)


def _vet_categories(tree: Mapping[str, Any], count: int) -> None:
    nodes, begins, sizes = (_integers(tree.get(name, [])) for name in _CATEGORIES)
    categories = _integers(tree.get("categories", []))
    require(len(nodes) == len(begins) == len(sizes))
    require(within(nodes, count) and within(categories, MAX_CATEGORIES) and bool((np.diff(nodes) > 0).all()))
    require(within(begins, len(categories)) and within(sizes - 1, len(categories)))
    require(bool((begins + sizes <= len(categories)).all()))


def _integers(values: Any) -> IntArray:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    require(array.ndim == 1 and array.dtype.kind in "iu")
    return array.astype(np.int64)


def _number(text: Any) -> int:
    """Return the value of a parameter, which is saved as a string."""
    require(isinstance(text, str) and text.isascii() and text.isdecimal())
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    require(len(made) == len(pairs))
    return made

"""Check the positions in a LightGBM model before the library reads it. Pure.

The file holds the sizes of its trees, and trees hold the positions of their nodes, leaves and features. LightGBM reads
memory at these positions without bounds checks, and reads past the end of a truncated file. The format:

    KEY=VALUE …      of the model
    Tree=NUMBER      and KEY=VALUE … of each tree, up to an empty line
    end of trees
    …
    end of parameters
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from serving.engines.base.tensors import IntArray, require, within

_END: Final = re.compile(rb"^end of parameters$", re.MULTILINE)
"""The last line, except for lines that the Python package adds."""
_END_OF_TREES: Final = b"\nend of trees\n"
_TREE: Final = b"Tree="
_GAP: Final = re.compile(rb"\n\n+")
_MAX_LINES: Final = 22  # of a tree; LightGBM/src/io/tree.cpp, `max_num_line`
_INT32: Final = 1 << 31
_CATEGORICAL: Final = 1  # bit of `decision_type`: the threshold is the index of a set of categories
_CLASSES: Final = re.compile(rb"\bnum_class:(\S*)")  # in `objective`

Fields = Mapping[bytes, bytes]


def columns_of(names: Sequence[str]) -> Sequence[str]:
    """Return the names of the columns that a model was trained on, none when LightGBM has only numbered them."""
    numbered = [f"Column_{index}" for index in range(len(names))]
    return () if list(names) == numbered else names


def vet(content: bytes) -> None:
    """Raise ValueError unless the file is an undamaged model."""
    if not _END.search(content):
        raise ValueError("the file is truncated: it has no line 'end of parameters'")
    require(b"\0" not in content and b"\r" not in content)
    begin = content.find(b"\n" + _TREE) + 1
    end = content.find(_END_OF_TREES, max(begin - 1, 0)) + 1
    require(end > 0)
    try:
        model = _fields(line for line in content[: begin or end].split(b"\n") if b"=" in line)
        features = _vet_model(model)
        sizes = [] if begin == 0 else _vet_trees(content[begin:end], features)
        if b"tree_sizes" in model:
            require(_integers(model[b"tree_sizes"]).tolist() == sizes)
    except KeyError as error:
        raise ValueError(f"the file is damaged: it has no {error.args[0].decode()}") from error


def _vet_model(model: Fields) -> int:
    """Check the fields of the model and return its number of features."""
    features = _number(model[b"max_feature_idx"]) + 1
    classes = _number(model[b"num_class"])
    require(len(model[b"feature_names"].split(b" ")) == features)
    require(classes > 0 and _number(model[b"num_tree_per_iteration"]) == classes)
    declared = _CLASSES.search(model.get(b"objective", b""))
    require(declared is None or _number(declared[1]) == classes)
    return features


def _vet_trees(content: bytes, features: int) -> list[int]:
    """Check the trees and return their sizes in bytes, including the empty lines after each."""
    sizes, at = [], 0
    while at < len(content):
        require(content.startswith(_TREE, at))
        gap = _GAP.search(content, at)
        if gap is None:
            raise ValueError("the file is truncated: a tree has no end")
        _, *lines = content[at : gap.start()].split(b"\n")
        require(len(lines) <= _MAX_LINES and all(b"=" in line for line in lines))
        _vet_tree(_fields(lines), features)
        sizes.append(gap.end() - at)
        at = gap.end()
    return sizes


def _vet_tree(tree: Fields, features: int) -> None:
    leaves, sets = _number(tree[b"num_leaves"]), _number(tree[b"num_cat"])
    require(leaves > 0)
    if leaves > 1:
        _vet_nodes(tree, leaves, features)
    _vet_categories(tree, sets)
    if _number(tree.get(b"is_linear", b"0")):
        _vet_linear_leaves(tree, leaves, features)


def _vet_nodes(tree: Fields, leaves: int, features: int) -> None:
    """Check the nodes. Each comes after its parent, so that there are no cycles; negative children are leaves."""
    nodes = np.arange(leaves - 1)
    for name in (b"left_child", b"right_child"):
        children = _integers(tree[name])
        require(len(children) == len(nodes))
        require(bool((np.where(children < 0, ~children < leaves, children > nodes) & (children < len(nodes))).all()))
    split = _integers(tree[b"split_feature"])
    require(len(split) == len(nodes) and within(split, features))
    require(len(tree[b"threshold"].split()) == len(nodes) and len(tree[b"leaf_value"].split()) == leaves)


def _vet_categories(tree: Fields, sets: int) -> None:
    if sets:
        begins = _integers(tree[b"cat_boundaries"])
        require(len(begins) == sets + 1 and begins[0] == 0 and bool((np.diff(begins) >= 0).all()))
        require(begins[-1] == len(tree[b"cat_threshold"].split()))
    kinds = _integers(tree.get(b"decision_type", b""))
    if not (kinds & _CATEGORICAL).any():
        return
    thresholds = np.array([float(part) for part in tree[b"threshold"].split()])
    require(len(kinds) == len(thresholds) and b"_" not in tree[b"threshold"])
    chosen = thresholds[(kinds & _CATEGORICAL) != 0]
    require(bool(((chosen >= 0) & (chosen < sets)).all()))


def _vet_linear_leaves(tree: Fields, leaves: int, features: int) -> None:
    """Check a tree whose leaves are linear models."""
    counts, used = _integers(tree[b"num_features"]), _integers(tree[b"leaf_features"])
    require(len(counts) == leaves and bool((counts >= 0).all()) and counts.sum() == len(used))
    require(within(used, features))
    require(len(tree[b"leaf_coeff"].split()) == len(used) and len(tree[b"leaf_const"].split()) == leaves)


def _fields(lines: Iterable[bytes]) -> Fields:
    pairs = [line.partition(b"=")[::2] for line in lines]
    made = dict(pairs)
    require(len(made) == len(pairs))  # two readers may choose different values of a repeated key
    return made


def _integers(text: bytes) -> IntArray:
    require(not text.strip(b"0123456789 -"))
    made = np.array([int(part) for part in text.split()], np.int64)
    require(bool((np.abs(made) < _INT32).all()))
    return made


def _number(text: bytes) -> int:
    require(text.isdigit() and int(text) < _INT32)
    return int(text)

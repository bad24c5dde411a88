"""Which types of scikit-learn are served although skops vouches for none of them, and what is checked instead.

skops knows that a file makes objects of harmless types, not that what they hold is harmless. Trees hold the positions
of their nodes and features, and scikit-learn reads memory there without looking: skops trusts no tree since 0.16. Here
the positions are checked; trees of neighbours are made anew from their points. Sparse matrices, which SciPy reads and
writes by positions of their own, and machines of support vectors, of which libsvm takes some sizes from others, are
checked likewise, and no vectorizer opens what a caller names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.feature_extraction.text import _VectorizerMixin
from sklearn.neighbors import BallTree, KDTree
from sklearn.neighbors._base import NeighborsBase
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import LoadFailed

_VETTED: Final = (
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.MinkowskiDistance64",
)
_KERNELS: Final = (
    "ConstantKernel", "WhiteKernel", "RBF", "Matern", "RationalQuadratic", "ExpSineSquared", "DotProduct",
    "Sum", "Product", "Exponentiation", "CompoundKernel",
)  # fmt: skip
_SCORES: Final = ("f_classif", "f_regression", "chi2", "r_regression")
_PLAIN: Final = (
    "functools.partial",  # of a function that is trusted too
    "numpy.dtype",
    "numpy.mean",
    "sklearn._loss.loss.HalfTweedieLoss",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils.validation.check_array",
    *(f"sklearn.gaussian_process.kernels.{kernel}" for kernel in _KERNELS),
    *(f"sklearn.feature_selection._univariate_selection.{score}" for score in _SCORES),
)
"""Python that holds numbers and does arithmetic."""
TRUSTED: Final = frozenset(_VETTED + _PLAIN)

_COMPRESSED: Final = frozenset({"csr", "csc"})
_TEXT: Final = "content"  # as `input` of a vectorizer: callers send texts, not names of files
_LEAF: Final = -1  # as the left child; sklearn/tree/_tree.pyx
_BITSET: Final = 8  # words of 32 bits, for 256 categories; sklearn/ensemble/_hist_gradient_boosting/_bitset.pyx
_CLASSIFIERS: Final = frozenset({"c_svc", "nu_svc"})  # of libsvm; others do not look at the vectors of each class
_PRECOMPUTED: Final = "precomputed"
_MACHINE: Final = "a support vector machine"


def vet(parts: Sequence[Any]) -> None:
    """Check the parts of a model that was loaded from a file, before it is asked anything. Raises LoadFailed."""
    vetted = set()
    for part in parts:
        if isinstance(part, Tree):
            _vet_tree(part)
        elif issparse(part):
            _vet_matrix(part)
        elif isinstance(part, _VectorizerMixin):
            _vet_vectorizer(part)
        elif isinstance(part, BaseDecisionTree) and hasattr(part, "tree_"):
            _require(part.tree_.n_features == part.n_features_in_)
        elif isinstance(part, BaseLibSVM) and hasattr(part, "support_"):
            _vet_machine(part)
        elif isinstance(part, BaseHistGradientBoosting) and hasattr(part, "_predictors"):
            _vet_histograms(part)
        elif isinstance(part, NeighborsBase) and getattr(part, "_tree", None) is not None:
            vetted.add(id(part._tree))
            _plant_anew(part)
    if any(isinstance(part, KDTree | BallTree) and id(part) not in vetted for part in parts):
        raise LoadFailed("the model keeps a tree of neighbours in a place where it is not known how to check it")
    for part in reversed(parts):  # owners come before what they hold; this asks what all else was checked for
        if isinstance(part, BaseGradientBoosting) and hasattr(part, "estimators_"):
            _vet_boosting(part)


def _vet_matrix(matrix: Any) -> None:
    if matrix.format not in _COMPRESSED:
        raise LoadFailed(f"the model holds a sparse matrix of format {matrix.format}: save it as csr")
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise LoadFailed("a sparse matrix of the model is damaged: save the model again") from error


def _vet_vectorizer(vectorizer: Any) -> None:
    if vectorizer.input != _TEXT:
        raise LoadFailed(f"{type(vectorizer).__name__} has input={vectorizer.input!r}: only {_TEXT!r} is served")


def _vet_machine(machine: BaseLibSVM) -> None:
    """sklearn/svm/src/libsvm/libsvm_helper.c, `set_model`: two numbers say how long all arrays are."""
    classes, vectors = len(machine._n_support), len(machine.support_)
    pairs = classes * (classes - 1) // 2
    coefficients = machine._dual_coef_
    _require(classes > 1, _MACHINE)
    if issparse(coefficients):  # whose values are read as if it were not
        _require(len(coefficients.data) == (classes - 1) * vectors, _MACHINE)
    else:
        _require(coefficients.shape == (classes - 1, vectors), _MACHINE)
    _require(len(machine._intercept_) == pairs, _MACHINE)
    _require(len(machine._probA) == len(machine._probB) and len(machine._probA) in (0, pairs), _MACHINE)
    if machine._impl in _CLASSIFIERS:
        _require(bool((machine._n_support >= 0).all()) and machine._n_support.sum() == vectors, _MACHINE)
    if machine.kernel == _PRECOMPUTED:
        _require(bool(((machine.support_ >= 0) & (machine.support_ < machine.n_features_in_)).all()), _MACHINE)
    else:
        _require(machine.support_vectors_.shape == (vectors, machine.n_features_in_), _MACHINE)


def _vet_tree(tree: Tree) -> None:
    _require(0 < tree.node_count <= tree.capacity)
    nodes = tree.__getstate__()["nodes"]
    inner = nodes["left_child"] != _LEAF
    _vet_nodes(nodes, inner, ("left_child", "right_child", "feature"), tree.n_features)


def _vet_boosting(model: BaseGradientBoosting) -> None:
    """Whose trees are read past their owners, and add to what its first guess is given room for."""
    width, targets = model.n_features_in_, model.n_trees_per_iteration_
    _require(model.estimators_.ndim == 2 and model.estimators_.shape[1] == targets)
    _require(all(tree.tree_.n_features == width and tree.tree_.n_outputs == 1 for tree in model.estimators_.flat))
    _require(model._raw_predict_init(np.zeros((1, width), np.float32)).shape == (1, targets))


def _vet_histograms(model: BaseHistGradientBoosting) -> None:
    categorical = np.asarray(model._bin_mapper.is_categorical_, bool)
    _require(len(categorical) == model.n_features_in_)
    for predictor in (predictor for row in model._predictors for predictor in row):
        nodes = predictor.nodes
        _require(len(nodes) > 0)
        inner = nodes["is_leaf"] == 0
        _vet_nodes(nodes, inner, ("left", "right", "feature_idx"), model.n_features_in_)
        splits = nodes[inner & (nodes["is_categorical"] != 0)]
        _require(bool(categorical[splits["feature_idx"]].all()))
        bits = predictor.raw_left_cat_bitsets
        _require(bits.ndim == 2 and bits.shape[1] == _BITSET)
        _require(bool((splits["bitset_idx"] < len(bits)).all()))


def _vet_nodes(nodes: Tensor, inner: Tensor, fields: tuple[str, str, str], features: int) -> None:
    """Children come behind their parents, so that no way down is endless, and are nodes; features are features."""
    place = np.flatnonzero(inner)
    left, right, feature = (nodes[field][place].astype(np.int64) for field in fields)
    for child in (left, right):
        _require(bool(((child > place) & (child < len(nodes))).all()))
    _require(bool(((feature >= 0) & (feature < features)).all()))


def _plant_anew(model: NeighborsBase) -> None:
    kind = KDTree if isinstance(model._tree, KDTree) else BallTree
    model._tree = kind(
        model._fit_X, model.leaf_size, metric=model.effective_metric_, **model.effective_metric_params_
    )  # fmt: skip


def _require(holds: bool, what: str = "a tree") -> None:
    if not holds:
        raise LoadFailed(f"{what} of the model is damaged: save the model again")

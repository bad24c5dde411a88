"""The types of scikit-learn that are served though skops does not trust them, and the checks that make this safe.

skops checks the types in a file, not their values. Trees hold the positions of their nodes and features, and
scikit-learn reads memory at these positions without bounds checks, so skops trusts no tree since 0.16. Instead:

- The positions in trees are checked. Neighbour trees are rebuilt from their points.
- Sparse matrices are checked, because SciPy reads and writes memory at their positions.
- Support vector machines are checked, because libsvm derives some array sizes from others.
- Vectorizers that open files named by a caller are refused.
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
    "functools.partial",  # its function must be trusted too
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
"""Python classes and functions that only hold numbers and compute."""
TRUSTED: Final = frozenset(_VETTED + _PLAIN)

_COMPRESSED: Final = frozenset({"csr", "csc"})
_TEXT: Final = "content"  # `input` of a vectorizer: callers send texts, not file names
_LEAF: Final = -1  # value of the left child; sklearn/tree/_tree.pyx
_BITSET: Final = 8  # words of 32 bits, for 256 categories; sklearn/ensemble/_hist_gradient_boosting/_bitset.pyx
_CLASSIFIERS: Final = frozenset({"c_svc", "nu_svc"})  # of libsvm; only they read the number of vectors of each class
_PRECOMPUTED: Final = "precomputed"
_SVM: Final = "a support vector machine"


def vet(parts: Sequence[Any]) -> None:
    """Check the parts of a loaded model, before its first call. Raises LoadFailed."""
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
            _vet_svm(part)
        elif isinstance(part, BaseHistGradientBoosting) and hasattr(part, "_predictors"):
            _vet_histogram_boosting(part)
        elif isinstance(part, NeighborsBase) and getattr(part, "_tree", None) is not None:
            vetted.add(id(part._tree))
            _rebuild_neighbor_tree(part)
    if any(isinstance(part, KDTree | BallTree) and id(part) not in vetted for part in parts):
        raise LoadFailed("the model has a neighbour tree in an unknown attribute, where it cannot be checked")
    for part in reversed(parts):  # last, because it calls parts that must be checked; owners precede their parts
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


def _vet_svm(machine: BaseLibSVM) -> None:
    """Check the array sizes, all of which libsvm derives from two numbers.

    See `set_model` in sklearn/svm/src/libsvm/libsvm_helper.c.
    """
    classes, vectors = len(machine._n_support), len(machine.support_)
    pairs = classes * (classes - 1) // 2
    coefficients = machine._dual_coef_
    _require(classes > 1, _SVM)
    if issparse(coefficients):  # libsvm reads the values as a dense array
        _require(len(coefficients.data) == (classes - 1) * vectors, _SVM)
    else:
        _require(coefficients.shape == (classes - 1, vectors), _SVM)
    _require(len(machine._intercept_) == pairs, _SVM)
    _require(len(machine._probA) == len(machine._probB) and len(machine._probA) in (0, pairs), _SVM)
    if machine._impl in _CLASSIFIERS:
        _require(bool((machine._n_support >= 0).all()) and machine._n_support.sum() == vectors, _SVM)
    if machine.kernel == _PRECOMPUTED:
        _require(bool(((machine.support_ >= 0) & (machine.support_ < machine.n_features_in_)).all()), _SVM)
    else:
        _require(machine.support_vectors_.shape == (vectors, machine.n_features_in_), _SVM)


def _vet_tree(tree: Tree) -> None:
    _require(0 < tree.node_count <= tree.capacity)
    nodes = tree.__getstate__()["nodes"]
    inner = nodes["left_child"] != _LEAF
    _vet_nodes(nodes, inner, ("left_child", "right_child", "feature"), tree.n_features)


def _vet_boosting(model: BaseGradientBoosting) -> None:
    """Check the trees, which are read directly, and the size of the initial prediction, which they add to in place."""
    width, targets = model.n_features_in_, model.n_trees_per_iteration_
    _require(model.estimators_.ndim == 2 and model.estimators_.shape[1] == targets)
    _require(all(tree.tree_.n_features == width and tree.tree_.n_outputs == 1 for tree in model.estimators_.flat))
    _require(model._raw_predict_init(np.zeros((1, width), np.float32)).shape == (1, targets))


def _vet_histogram_boosting(model: BaseHistGradientBoosting) -> None:
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
    """Check that all positions are in range, and that children come after their parents, which excludes cycles."""
    place = np.flatnonzero(inner)
    left, right, feature = (nodes[field][place].astype(np.int64) for field in fields)
    for child in (left, right):
        _require(bool(((child > place) & (child < len(nodes))).all()))
    _require(bool(((feature >= 0) & (feature < features)).all()))


def _rebuild_neighbor_tree(model: NeighborsBase) -> None:
    kind = KDTree if isinstance(model._tree, KDTree) else BallTree
    model._tree = kind(
        model._fit_X, model.leaf_size, metric=model.effective_metric_, **model.effective_metric_params_
    )  # fmt: skip


def _require(holds: bool, what: str = "a tree") -> None:
    if not holds:
        raise LoadFailed(f"{what} of the model is damaged: save the model again")

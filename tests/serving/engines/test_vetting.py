"""Manipulated model files are refused before a library reads memory out of bounds."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import BallTree, KDTree, KNeighborsClassifier
from sklearn.svm import SVC, SVR, NuSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.sklearn import engine as sklearn
from serving.engines.sklearn.estimator import parts_of
from serving.engines.sklearn.vetting import vet
from tests.support.tabular import ask, file, iris, two_kinds


def changed(tree: Any, field: str, value: Any) -> None:
    """Modify the nodes of a fitted tree, as the author of a file can."""
    state = tree.__getstate__()
    if field in state:
        state[field] = value
    else:
        state["nodes"][field][0] = value
    tree.__setstate__(state)


@pytest.mark.bad_input("artifact-unsafe")
@pytest.mark.parametrize(
    ("field", "value"),
    [("left_child", 10**6), ("left_child", 0), ("left_child", -2), ("right_child", 17 << 32), ("feature", 4),
     ("feature", -1), ("node_count", 10**6), ("node_count", 0)],
)  # fmt: skip
def test_a_tree_that_leads_elsewhere_is_refused(field: str, value: int) -> None:
    model = RandomForestClassifier(2).fit(*iris())
    vet(parts_of(model))
    changed(model.estimators_[1].tree_, field, value)
    with pytest.raises(LoadFailed, match="damaged"):
        vet(parts_of(model))


@pytest.mark.parametrize(
    ("field", "value"), [("left", 10**6), ("left", 0), ("right", 0), ("feature_idx", 4), ("is_categorical", 1)]
)
def test_a_tree_of_histograms_that_leads_elsewhere_is_refused(field: str, value: int) -> None:
    model = HistGradientBoostingClassifier(max_iter=2).fit(*iris())
    vet(parts_of(model))
    model._predictors[1][0].nodes[field][0] = value
    with pytest.raises(LoadFailed, match="damaged"):
        vet(parts_of(model))


def test_sets_of_categories_that_end_too_early_are_refused() -> None:
    features, kinds = iris()
    features = features.copy()
    features[:, 3] = features[:, 3].round()
    model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[3]).fit(features, kinds)
    vet(parts_of(model))
    for predictor in model._predictors[0]:
        predictor.raw_left_cat_bitsets = predictor.raw_left_cat_bitsets[:, :1].copy()
    with pytest.raises(LoadFailed, match="damaged"):
        vet(parts_of(model))


def shorten(name: str) -> Callable[[Any], None]:
    """Return a change that removes the last element of an array."""

    def change(model: Any) -> None:
        value = getattr(model, name)
        setattr(model, name, value[..., :-1].copy())

    return change


def claim_more_vectors(model: Any) -> None:
    model._n_support = model._n_support + 1


def claim_less_than_none(model: Any) -> None:
    model._n_support = model._n_support - np.array([10**6, -(10**6), 0], np.int32)


def claim_another_class(model: Any) -> None:
    model._n_support = np.append(model._n_support, np.int32(0))


def unlike_probabilities(model: Any) -> None:
    model._probA = np.zeros(3)


def lead_out_of_the_kernel(model: Any) -> None:
    model.kernel = "precomputed"
    model.support_ = model.support_ + 10**6


@pytest.mark.parametrize(
    "change",
    [shorten("_dual_coef_"), shorten("_intercept_"), shorten("support_"), shorten("support_vectors_"),
     unlike_probabilities, claim_more_vectors, claim_less_than_none, claim_another_class, lead_out_of_the_kernel],
)  # fmt: skip
def test_a_machine_whose_sizes_do_not_fit_is_refused(change: Callable[[Any], None]) -> None:
    model = SVC().fit(*iris())
    vet(parts_of(model))
    change(model)
    with pytest.raises(LoadFailed, match="support vector machine of the model is damaged"):
        vet(parts_of(model))


def narrower(model: Any) -> None:
    model.n_features_in_ = 2


def fewer_targets(model: Any) -> None:
    model.n_trees_per_iteration_ = 1


def missing_trees(model: Any) -> None:
    model.estimators_ = model.estimators_[:, :2]


@pytest.mark.parametrize("change", [narrower, fewer_targets, missing_trees])
def test_trees_that_do_not_fit_their_model_are_refused(change: Callable[[Any], None]) -> None:
    model = GradientBoostingClassifier(n_estimators=2).fit(*iris())
    vet(parts_of(model))
    change(model)
    with pytest.raises((LoadFailed, ValueError)):
        vet(parts_of(model))
    tree = DecisionTreeClassifier().fit(*iris())
    narrower(tree)
    with pytest.raises(LoadFailed):
        vet(parts_of(tree))


def test_trees_of_neighbours_are_made_anew_of_their_points() -> None:
    features, kinds = iris()
    for algorithm in ("kd_tree", "ball_tree"):
        model = KNeighborsClassifier(algorithm=algorithm, metric="manhattan").fit(features, kinds)
        expected = model.predict_proba(features)
        model._tree = type(model._tree)(features[:1] * 0)  # points that the model never saw
        vet(parts_of(model))
        np.testing.assert_array_equal(model.predict_proba(features), expected)


@pytest.mark.parametrize("kind", [KDTree, BallTree])
def test_a_tree_of_neighbours_elsewhere_is_refused(kind: Any) -> None:
    model = BaseEstimator()
    model.tree_ = kind(iris()[0])
    with pytest.raises(LoadFailed, match="cannot be checked"):
        vet(parts_of(model))


@pytest.mark.parametrize(
    "model",
    [DecisionTreeClassifier(max_leaf_nodes=4), IsolationForest(n_estimators=3, random_state=0),
     HistGradientBoostingClassifier(max_iter=3, categorical_features=[3]), GradientBoostingClassifier(n_estimators=2),
     KNeighborsClassifier(algorithm="ball_tree"), SVC(), NuSVC(kernel="poly"), SVR(), OneClassSVM()],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_what_was_trained_is_served(model: Any) -> None:
    features, kinds = two_kinds()
    features = features.copy()
    features[:, 3] = features[:, 3].round()
    model.fit(features, kinds)
    made = sklearn.load(file(skops.io.dumps(model)), EngineOptions())
    np.testing.assert_array_equal(ask(made, "output-0", features), model.predict(features))


def test_machines_of_sparse_rows_and_of_kernels_of_ones_own_are_served() -> None:
    features, kinds = iris()
    vet(parts_of(SVC().fit(csr_matrix(features), kinds)))
    vet(parts_of(SVC(kernel="precomputed").fit(features @ features.T, kinds)))


@pytest.mark.parametrize("damage", [("indices", 10**6), ("indices", -1), ("indptr", 10**6)])
def test_a_sparse_matrix_that_leads_elsewhere_is_refused(damage: tuple[str, int]) -> None:
    model = SGDClassifier(max_iter=5, tol=None).fit(*iris()).sparsify()
    vet(parts_of(model))
    field, value = damage
    getattr(model.coef_, field)[1] = value
    with pytest.raises(LoadFailed, match="a sparse matrix of the model is damaged"):
        vet(parts_of(model))


def test_a_sparse_matrix_of_another_form_is_refused() -> None:
    model = SGDClassifier(max_iter=5, tol=None).fit(*iris()).sparsify()
    model.coef_ = model.coef_.tocoo()
    with pytest.raises(LoadFailed, match="sparse matrix of format coo: save it as csr"):
        vet(parts_of(model))


@pytest.mark.bad_input("artifact-unsafe")
@pytest.mark.parametrize("kind", [CountVectorizer, TfidfVectorizer, HashingVectorizer])
@pytest.mark.parametrize("source", ["filename", "file"])
def test_a_vectorizer_that_opens_what_callers_name_is_refused(kind: Any, source: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a word")
    document = io.StringIO("a word") if source == "file" else str(path)
    step = kind(input=source).fit([document])
    step.categories_ = [[str(path)]]
    with pytest.raises(LoadFailed, match=f"{kind.__name__} has input='{source}': only 'content' is served"):
        sklearn.load(file(skops.io.dumps(step), "m.skops"), EngineOptions(allow_code=True))


def test_a_damaged_tree_inside_a_first_guess_is_refused_before_it_is_asked() -> None:
    guess = RandomForestClassifier(2)
    model = GradientBoostingClassifier(n_estimators=2, init=guess).fit(*two_kinds())
    vet(parts_of(model))
    changed(model.init_.estimators_[0].tree_, "left_child", 0)
    with pytest.raises(LoadFailed, match="damaged"):
        vet(parts_of(model))

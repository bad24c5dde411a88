"""Models with something wrong, or nothing: a door names faults and never fails; what it lets in can be rendered.

Knative's `FuzzValidation`, `FuzzRoundTrip` and the admission targets, for our kinds: what is let in means the same
after a way through JSON and YAML, and the Knative objects that it becomes pass Knative's own door.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from hypothesis import strategies as st

from clusters.base.objects import KINDS, MODEL, Object
from clusters.embedded.store.admission import metadata_faults, shape_faults, unknown_faults
from clusters.net.strict_yaml import load_documents
from serving.makers.knative import render
from serving.types.faults import claim_of
from serving.types.settings.settings import Settings
from serving.types.validation import read_model, validate_model
from tests.fuzz.target import Target
from tests.manifests.bad_models import BAD_MODELS, GOOD_MODELS
from tests.support.knative_webhook.validation import PLATFORM_FEATURES, validators

LONGEST_MESSAGE = 1000  # characters of one fault: it may repeat a value, not the object
KNATIVE = validators(PLATFORM_FEATURES)
BY_NAME = {(kind.api_version, kind.kind): kind for kind in KINDS}
SETTINGS = Settings()

WORDS = st.sampled_from(
    ["", "a", "magika", "1", "0", "-1", "100", "auto", "10s", "file:///m", "..", "\x00", "\ud7ff", "é", "x" * 70]
)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | WORDS | st.text(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
SEEDS = [*GOOD_MODELS.values(), *(bad.object for bad in BAD_MODELS)]


@st.composite
def models(draw: st.DrawFn) -> Object:
    """A Model of the tables with some values replaced, left out or added."""
    made: Object = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, draw(st.sampled_from(list(_inner(made)))))
    return made


def _change(draw: st.DrawFn, place: dict[str, Any] | list[Any]) -> None:
    if isinstance(place, list):
        if place:
            place[draw(st.integers(0, len(place) - 1))] = draw(VALUES)
        return
    name = draw(st.sampled_from(sorted(place)) if place else WORDS) if draw(st.booleans()) else draw(WORDS)
    if draw(st.booleans()):
        place.pop(name, None)
    else:
        place[name] = draw(VALUES)


def _inner(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    if isinstance(value, (dict, list)):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _inner(one)


@contextmanager
def opened() -> Iterator[Callable[[Object], None]]:
    """The check of one object."""
    yield check


def check(obj: Object) -> None:
    """Raises AssertionError when a promise is broken, and whatever else the doors raise."""
    before = copy.deepcopy(obj)
    faults = [*shape_faults(MODEL, obj)]
    if not faults:
        faults = [*unknown_faults(None, obj), *metadata_faults(MODEL, _placed(obj)), *validate_model(None, obj)]
    assert obj == before, "a check changes nothing"
    for fault in faults:
        assert fault.message and "\n" not in fault.path + fault.message
        assert len(fault.message) < LONGEST_MESSAGE, fault.message[:200]
    if not faults:
        _check_taken(_placed(obj))


def _check_taken(obj: Object) -> None:
    model = read_model(obj)
    assert read_model(json.loads(json.dumps(obj))) == model
    assert read_model(load_documents(yaml.safe_dump(obj, allow_unicode=True))[0]) == model
    if model.spec.runtime or claim_of(model.spec.storage_uri):
        return  # these settings have no other runtimes, and this platform no volume claims
    for made in render(obj, SETTINGS):
        kind = BY_NAME[made["apiVersion"], made["kind"]]
        assert list(KNATIVE[kind](None, made)) == [], made


def _placed(obj: Object) -> Object:
    return {**obj, "metadata": {"namespace": "default", **obj["metadata"]}}


TARGETS = (Target("Models at the door", models(), opened, everyday=150),)

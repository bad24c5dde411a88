"""The stand-in's door: what real Knative refuses it refuses, what Knative takes it takes (`tests/cluster/test_goldens`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clusters.embedded.knative.validation import VALIDATORS
from clusters.errors import FieldError
from tests.golden.bad_objects import BAD
from tests.golden.good_objects import GOOD, STRICTER
from tests.golden.objects import Example


def faults(example: Example) -> Sequence[FieldError]:
    """What the stand-in says of an object."""
    return VALIDATORS[example.kind](None, example.object)


@pytest.mark.parametrize("example", BAD, ids=str)
def test_a_bad_object_is_refused(example: Example) -> None:
    assert faults(example)


@pytest.mark.parametrize("example", GOOD, ids=str)
def test_a_good_object_is_accepted(example: Example) -> None:
    assert [str(fault) for fault in faults(example)] == []


@pytest.mark.parametrize("reason", STRICTER)
def test_the_stand_in_is_stricter_only_for_a_reason(reason: str) -> None:
    field, example = STRICTER[reason]
    assert [fault.path for fault in faults(example)] == [field]


def test_every_example_has_a_name_of_its_own() -> None:
    names = [example.name for example in (*BAD, *GOOD)]
    assert len(names) == len(set(names))

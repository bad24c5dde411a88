"""Field sets of server-side apply: format and invariants. The contract tests the behaviour."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.errors import Conflict
from clusters.base.fieldsets import apply, changed, leaves, same, spell, updated
from clusters.base.managed_fields import FieldManager, Operation, read_managers, write_managers
from clusters.base.objects import Object

SCALARS = st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def manager(name: str, operation: Operation = "Apply") -> FieldManager:
    """A manager that owns nothing yet."""
    return FieldManager(name, operation, "", "example.org/v1", "2026-01-01T00:00:00Z", frozenset())


class Live:
    """An object and its managers under a sequence of applies and updates."""

    def __init__(self) -> None:
        self.object: Object = {}
        self.managers: tuple[FieldManager, ...] = ()

    def apply(self, name: str, spec: Any, *, force: bool = True) -> Live:
        """Apply in place."""
        wanted = {"spec": spec} if spec else {}
        applied = apply(self.managers, self.object, wanted, manager(name), force=force, what="thing")
        self.object, self.managers = applied.object, applied.managers
        return self

    def update(self, name: str, spec: Any) -> Live:
        """Replace the spec in place."""
        after = {"spec": spec}
        self.managers = updated(self.managers, self.object, after, manager(name, "Update"))
        self.object = after
        return self

    @property
    def state(self) -> tuple[Object, frozenset[FieldManager]]:
        """What can be compared."""
        return self.object, frozenset(self.managers)


@given(SPECS, SPECS)
def test_applying_twice_is_applying_once(base: Any, spec: Any) -> None:
    live = Live().apply("other", base).apply("me", spec)
    once = copy.deepcopy(live.state)
    assert live.apply("me", spec, force=False).state == once


@given(VALUES, VALUES)
def test_managers_of_disjoint_fields_commute(one: Any, two: Any) -> None:
    assert Live().apply("one", {"a": one}).apply("two", {"b": two}, force=False).state == (
        Live().apply("two", {"b": two}).apply("one", {"a": one}, force=False).state
    )


@given(SPECS, SPECS)
def test_a_forced_apply_says_what_it_wanted(base: Any, spec: Any) -> None:
    live = Live().apply("other", base).apply("me", spec)
    present = dict(leaves(live.object))
    for field, value in leaves({"spec": spec} if spec else {}):
        assert value == {} or same(present[field], value)


@given(SPECS, SPECS)
def test_withdrawing_everything_leaves_what_others_say(base: Any, spec: Any) -> None:
    alone = dict(leaves(Live().apply("other", base).object))
    live = Live().apply("other", base)
    try:
        live.apply("me", spec, force=False)
    except Conflict:
        return
    live.apply("me", {})
    assert {field: value for field, value in leaves(live.object) if value != {}} == {
        field: value for field, value in alone.items() if value != {}
    }
    assert {entry.name for entry in live.managers} <= {"other"}


@given(SPECS, SPECS, SPECS)
def test_every_field_has_an_owner_and_every_owner_a_field(one: Any, two: Any, three: Any) -> None:
    live = Live().apply("one", one).update("two", two).apply("three", three)
    owned = {field for entry in live.managers for field in entry.fields}
    present = {field for field, value in leaves(live.object) if value != {}}
    assert present <= owned
    assert all(entry.fields for entry in live.managers)


@given(SPECS, SPECS)
def test_nothing_changed_exactly_when_the_values_are_the_same(one: Any, two: Any) -> None:
    assert (not set(changed(one, two))) == same(one, two) or _differ_in_empty_maps_only(one, two)


@given(SPECS, SPECS)
def test_no_argument_is_changed(base: Any, spec: Any) -> None:
    live = Live().apply("other", base)
    before = copy.deepcopy((live.object, base, spec))
    wanted = {"spec": spec}
    apply(live.managers, live.object, wanted, manager("me"), force=True, what="thing")
    assert (live.object, base, spec) == before


@given(SPECS, SPECS)
def test_managed_fields_come_back_as_they_were_written(one: Any, two: Any) -> None:
    live = Live().apply("one", one).update("two", two)
    written = write_managers(live.managers)
    assert read_managers({"metadata": {"managedFields": written}}) == live.managers


def test_the_written_form_is_that_of_kubernetes() -> None:
    live = Live().apply("one", {"a": {"b": 1}, "l": [1]})
    assert write_managers(live.managers) == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "example.org/v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:a": {"f:b": {}}, "f:l": {}}},
        }
    ]


def test_a_map_and_its_children_may_have_owners_of_their_own() -> None:
    live = Live().apply("one", {"m": {}}).apply("two", {"m": {"a": 1}}, force=False)
    live.apply("one", {"m": {}}, force=False).apply("two", {}, force=False)
    assert live.object == {"spec": {"m": {}}}


def test_equal_field_sets_are_one_value() -> None:
    entries = [write_managers(Live().apply(name, {"a": 1}).managers)[0] for name in ("one", "two")]
    assert entries[0]["fieldsV1"] is entries[1]["fieldsV1"]


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ({"a": 1}, {"a": True}), ([1], [1.0])])
def test_json_tells_apart_what_python_does_not(one: Any, other: Any) -> None:
    assert one == other
    assert not same(one, other)
    assert list(changed({"v": one}, {"v": other}))


def test_fields_are_spelt_for_people() -> None:
    assert spell(("f:spec", "f:traffic")) == "spec.traffic"
    assert spell(("f:metadata", "f:labels", "f:a.b/c")) == "metadata.labels[a.b/c]"
    assert spell(("f:metadata", "f:finalizers", 'v:"x/y"')) == 'metadata.finalizers["x/y"]'


def _differ_in_empty_maps_only(one: Any, two: Any) -> bool:
    """An empty map in place of a full one is told by its children that went, not by itself."""
    full = [{field for field, value in leaves(value) if value != {}} for value in (one, two)]
    return full[0] == full[1]

"""The definition of Model says what the Python door says; the parts of it that need no API server are judged here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusters.base import durations, quantities
from clusters.base.objects import MODEL
from serving.crds.definition import make_schema
from serving.types import faults, formats
from serving.types.fields import Duration, Quantity, Text
from serving.types.model import ALL, ModelSpec
from serving.types.resources import CPU, MEMORY
from serving.types.scaling import MAX_REPLICAS
from serving.types.schema import PRESERVE, RULES, Schema
from serving.types.tables import table_of
from serving.types.validation import validate_model
from tests.manifests.bad_models import BAD_URIS, GOOD_MODELS, NOTHING
from tests.manifests.checker import faults as schema_faults
from tests.manifests.checker import pattern_faults
from tests.manifests.generate import generated
from tests.serving.models import model_object

SCHEMA = make_schema(MODEL)
SPEC = SCHEMA["properties"]["spec"]


def python_faults(**spec: Any) -> set[str]:
    return {error.path for error in validate_model(None, model_object(**spec))}


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from walk(one, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")


def test_the_files_are_what_the_types_make_of_them() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, f"{path} is old: run `make manifests`"


def test_every_field_of_the_spec_stands_in_the_schema_and_no_other() -> None:
    known = set(NOTHING) | {"storageUri"}
    assert set(SPEC["properties"]) == known
    assert set(table_of(ModelSpec)) == known - set(ModelSpec.LATER)


def test_every_good_model_fits_the_schema() -> None:
    for name, obj in GOOD_MODELS.items():
        metadata = {"metadata": {"name": obj["metadata"]["name"]}}
        assert list(schema_faults(SCHEMA, {**obj, **metadata})) == [], name


def test_the_schema_is_structural_and_its_lists_are_atomic() -> None:
    for path, schema in walk(SCHEMA):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        if schema.get("type") == "array":
            assert schema["x-kubernetes-list-type"] == "atomic", path
        assert "default" not in schema, f"{path}: defaults are read in, the stored object keeps what was written"


def test_every_text_and_list_that_people_write_has_a_bound() -> None:
    """CEL's cost is estimated by them."""
    for path, schema in walk(SPEC):
        if PRESERVE in schema or path.endswith(("gpuResource", "gpu")):
            continue
        if schema.get("type") == "string":
            assert "maxLength" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path


def test_fields_of_later_releases_are_kept_and_refused_in_the_words_of_the_python_door() -> None:
    rules = {rule["rule"]: rule for rule in SPEC[RULES]}
    for name, later in ModelSpec.LATER.items():
        assert rules[f"!has(self.{name})"]["message"] == f"not supported yet: {later.about}"
        assert rules[f"!has(self.{name})"]["fieldPath"] == f".{name}"
        assert name in SPEC["properties"]


def test_the_descriptions_tell_the_defaults() -> None:
    told = {name: schema["description"] for name, schema in SPEC["properties"].items()}
    assert "Default: 300s" in told["timeout"]
    assert f"Default: {MAX_REPLICAS}" in told["maxReplicas"]
    assert f"cpu {CPU}, memory {MEMORY}" in told["resources"]


INTEGERS = ("minReplicas", "maxReplicas", "holdQueue", "containerConcurrency", "canaryTrafficPercent")
NUMBERS = ("scaleTarget", "targetUtilization")
BOUNDS = [
    bound + step
    for name in (*INTEGERS, *NUMBERS)
    for bound in (SPEC["properties"][name]["minimum"], SPEC["properties"][name]["maximum"])
    for step in (-1, 0, 1)
]
values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**40), st.sampled_from(BOUNDS), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@given(st.sampled_from(INTEGERS), values.filter(lambda value: not isinstance(value, float)))
def test_whole_numbers_are_judged_alike(name: str, value: Any) -> None:
    lifted = {"maxReplicas": 1000} if name == "minReplicas" else {}  # else the rule between the two
    mine = f"spec.{name}" in python_faults(**{**lifted, name: value})
    assert mine == bool(list(schema_faults(SPEC["properties"][name], value)))


@given(st.sampled_from(NUMBERS), st.one_of(values, st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_judged_alike(name: str, value: Any) -> None:
    assert (f"spec.{name}" in python_faults(**{name: value})) == bool(
        list(schema_faults(SPEC["properties"][name], value))
    )


TEXTS = ("storageUri", "digest", "version", "modelFormat", "timeout", "serviceAccountName", "visibility", "protocol")


@given(st.sampled_from(TEXTS), values.filter(lambda value: value is not None and not isinstance(value, str)))
def test_what_is_no_text_is_refused_by_both(name: str, value: Any) -> None:
    assert f"spec.{name}" in python_faults(**{name: value})
    assert list(schema_faults(SPEC["properties"][name], value))


shares = st.lists(st.integers(-1, 101), max_size=4)


@given(shares)
@example([-1, 101])
def test_lists_of_parts_are_judged_alike(percents: list[int]) -> None:
    variants = [{"name": f"v{index}", "percent": percent} for index, percent in enumerate(percents)]
    traffic = [{"revision": f"a-{index:05}", "percent": percent} for index, percent in enumerate(percents)]
    for name, entries in (("variants", variants), ("traffic", traffic)):
        by_schema = {f"spec.{name}{path}" for path in schema_faults(SPEC["properties"][name], entries)}
        by_python = python_faults(**{name: entries})
        if sum(percents) != ALL and not by_schema:  # a rule, not a bound
            by_python.discard(f"spec.{name}")
        assert by_schema == by_python


@pytest.mark.parametrize(
    ("schema", "fault", "pattern"),
    [
        (Text("", formats.LABEL).schema(), faults.label_fault, faults.DNS_1035.pattern),
        (Text("", formats.SUBDOMAIN).schema(), faults.subdomain_fault, faults.DNS_1123_SUBDOMAIN.pattern),
        (Text("", formats.DIGEST).schema(), faults.digest_fault, faults.DIGEST.pattern),
    ],
)
@given(data=st.data())
def test_patterns_are_judged_alike(schema: Schema, fault: Any, pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.one_of(st.from_regex(pattern), st.from_regex(pattern, fullmatch=True), st.text(max_size=8)))
    by_schema = bool(list(schema_faults(schema, text)) or pattern_faults(schema, text))
    assert by_schema == bool(fault(text))


@given(st.one_of(st.from_regex(durations.DURATION.pattern), st.text(max_size=6)))
def test_the_syntax_of_durations_is_judged_alike(text: str) -> None:
    schema = Duration("", 1.0, 2.0).schema()
    refused = "must be a duration" in _words(durations.parse_duration, text)
    if text != "0":  # out of bounds in both
        assert bool(pattern_faults(schema, text) or list(schema_faults(schema, text))) == refused


@given(st.one_of(st.from_regex(quantities.QUANTITY.pattern), st.text(max_size=6)))
def test_the_syntax_of_quantities_is_judged_alike(text: str) -> None:
    rule = Quantity("").schema()[RULES][0]
    alone = {RULES: [{**rule, "rule": rule["rule"].removeprefix("type(self) != string || ")}]}
    refused = "must be a Kubernetes quantity" in _words(quantities.parse_quantity, text)
    assert bool(pattern_faults(alone, text) or list(schema_faults(Quantity("").schema(), text))) == refused


def _words(parse: Any, text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def test_the_words_for_uris_are_those_of_the_python_door() -> None:
    told = {rule["message"] for rule in Text("", formats.STORAGE_URI).schema()[RULES]}
    for uri in BAD_URIS:
        words = faults.storage_uri_fault(uri)
        assert any(words.startswith(message) for message in told) or "at most" in words, (uri, words)

"""Authorization of events: a table of Models, and one of storage URIs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventing.auth import permits
from eventing.auth.permits import is_below
from eventing.objects.ports import Mapped, ModelChange, ModelRef
from tests.eventing.webhook import event_source


@pytest.mark.parametrize(
    ("patterns", "model", "allowed"),
    [
        (("*",), "default/magika", True),
        (("*",), "other/magika", False),
        (("magika",), "default/magika", True),
        (("mag*", "ocr"), "default/ocr", True),
        (("*/magika",), "other/magika", True),
        (("*/*",), "other/ocr", True),
        (("team-*/m?gika",), "team-a/magika", True),
        (("team-*/magika",), "default/magika", False),
        (("[a-m]*",), "default/ocr", False),
        ((), "default/magika", False),
        (("Magika",), "default/magika", False),
    ],
)
def test_models_are_globs_and_a_bare_one_is_of_its_own_namespace(
    patterns: tuple[str, ...], model: str, allowed: bool
) -> None:
    namespace, name = model.split("/")
    mapped = Mapped("1", "s", None, ModelRef(namespace, name), ModelChange("s3://models/a"))

    refusal = permits.refusal(event_source(models=patterns), mapped)

    assert (refusal == "") is allowed


def test_an_event_that_changes_nothing_needs_no_right() -> None:
    assert permits.refusal(event_source(models=()), Mapped("1", "s", None, ignored="no change")) == ""


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("s3://models/a", "s3://models/"),
        ("s3://models/a", "s3://models"),
        ("s3://models", "s3://models"),
        ("S3://Models/a", "s3://models/"),
        ("file:///models/a/%62", "file:///models/a/b"),
        ("https://host/models/a/%62", "https://host/models/a/b"),
        ("pvc://claim/a%62", "pvc://claim/ab"),
        ("https://host:8443/m/a?sig=x%2F..", "https://host:8443/m/"),
        ("file:///models/a", "file:///models"),
        ("oci://registry.example/team/magika:7", "oci://registry.example/team/magika"),
        ("oci://registry.example/team/magika@sha256:ab", "oci://registry.example/team/magika"),
        ("hf://org/model@main", "hf://org/model"),
        ("pvc://claim/a", "pvc://claim"),
    ],
)
def test_an_address_is_below_its_prefix(address: str, prefix: str) -> None:
    assert is_below(address, [prefix])


@pytest.mark.bad_input("event-address")
@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("s3://models-evil/a", "s3://models"),
        ("s3://models/team-evil/a", "s3://models/team"),
        ("s3://models/team/../other", "s3://models/team/"),
        ("s3://models/team/%2e%2e/other", "s3://models/team/"),
        ("s3://models/team/%252e%252e/other", "s3://models/team/"),
        ("s3://models/team/./a", "s3://models/team/"),
        ("s3://models/team/..%2fother", "s3://models/team/"),
        ("s3://models/team\\..\\other", "s3://models/team/"),
        ("s3://models/team/%5c..", "s3://models/team/"),
        ("s3://models/a%00", "s3://models/"),
        ("s3://models/te%61m/x", "s3://models/team"),
        ("gs://models/a/%62", "gs://models/a/b"),
        ("hf://org/model@refs/pr/7", "hf://org/model"),
        ("hf://org/model:refs/pr/7", "hf://org/"),
        ("s3://models/%ff", "s3://models/"),
        ("s3://models/a#b", "s3://models/"),
        ("s3://models/a?x/../../y", "s3://models/"),
        ("file:///models/a?/../../etc/passwd", "file:///models/"),
        ("file:///etc/passwd", "s3://models/"),
        ("file:///etc/passwd", "file:///models/"),
        ("file://host/models/a", "file:///models/"),
        ("file:/models/a", "file:///models/"),
        ("/models/a", "file:///models/"),
        ("http://169.254.169.254/latest", "https://host/"),
        ("http://host/m", "https://host/m"),
        ("https://host.evil/m", "https://host"),
        ("https://host@evil/m", "https://host"),
        ("https://host:pw@evil/m", "https://host"),
        ("https://host#@evil/m", "https://host"),
        ("https://host\t.evil/m", "https://host"),
        ("https://host:80/m", "https://host/m"),
        ("https://[::1]/m", "https://[::1]/m"),
        ("https://2130706433/m", "https://127.0.0.1/"),
        ("oci://registry.example/team/magika-evil:7", "oci://registry.example/team/magika"),
        ("oci://registry.example:5000/team", "oci://registry.example/team"),
        ("s3://models/a:b", "s3://models/a"),
        ("", "s3://models/"),
        ("s3://models/a", ""),
        ("s3://models/a", "s3://models/%"),
    ],
)
def test_an_address_is_not_below_another_prefix(address: str, prefix: str) -> None:
    assert not is_below(address, [prefix])


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://ann:s3cret@store.example/m.onnx?signature=s3cret", "'https://store.example/m.onnx'"),
        ("https://ann:s3?cret@store.example/m.onnx", "'https://store.example/m.onnx'"),
        ("hf://org/model@v2", "'hf://org/model@v2'"),
        ("oci://registry.example/x@sha256:abc", "'oci://registry.example/x@sha256:abc'"),
    ],
)
def test_an_address_that_is_refused_is_told_without_password_and_query(address: str, told: str) -> None:
    model = ModelRef("default", "magika")
    refusal = permits.refusal(event_source(), Mapped("1", "s", None, model=model, change=ModelChange(address)))
    assert f"does not allow {told}: see" in refusal


def test_without_prefixes_nothing_is_allowed() -> None:
    assert not is_below("s3://models/a", [])


@given(
    st.sampled_from(["s3://", "http://", "S3://", "hf:/", "file://"]),
    st.text(st.sampled_from("ab/:.%-_=@~?#A1 \\"), max_size=10),
)
def test_a_plain_address_is_read_as_any_other_is(scheme: str, rest: str) -> None:
    quick = permits._parts(scheme + rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permits, "_PLAIN", re.compile("(?!)"))
        assert quick == permits._parts(scheme + rest)

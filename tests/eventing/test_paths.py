"""Paths and templates: selected values, and bounded time on untrusted data."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eventing.mapping.paths import BadPath, Path
from eventing.mapping.templates import Alternatives, Template
from eventing.mapping.transforms import address, label, purl

DATA = {"a": [{"t": "x", "v": 1}, {"t": "y", "v": "two"}], "n": None, "e": "", "b": True, "f": 1.5, "o": {"k": "v"}}
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.a[?@.t == 'y'].v", "two"),
        ("$.a[?@.t == 'y' || @.t == 'x'].v", 1),
        ("$.a[?length(@.t) == 1].v", 1),
        ("$['b']", True),
        ("$['a,b']", None),
        ("$.n", None),
        ("$.missing", None),
        ("$.o", {"k": "v"}),
    ],
)
def test_a_path_has_the_value_of_its_first_node(path: str, value: Any) -> None:
    assert Path(path).first(DATA) == value


def test_a_null_is_selected_and_nothing_is_not() -> None:
    assert Path("$.n").selects(DATA)
    assert not Path("$.missing").selects(DATA)
    assert not Path("$.missing").selects(None)


NO_PATHS = ("", "a", "$.", "$[", " $.a", "$.a ", "$.a | $.b", "$.a & $.b", "$.a[?@ =~ /x/]", "$.a.~k")
NO_PATHS_HERE = ("$..a", "$.a..b", "$.a[?$.b]", "$.a[?search(@, 'x')]", "$.a[?match(@, 'x')]", "$." + "a" * 600)
NO_NUMBERS = ("$.a[?@ == 1e400]", "$.a[1e9]", "$.a[?@ == -1e999]")
SEVERAL = ("$[0,0]", "$['missing','b']", "$.a[?@[*,*]]", "$.a[*, *]")


@pytest.mark.parametrize("path", [*NO_PATHS, *NO_PATHS_HERE, *NO_NUMBERS, *SEVERAL])
def test_what_is_no_path_or_could_take_long_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(BadPath) as caught:
        Path(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [{"v": 1}, {"v": [1]}, {}])
def test_what_the_engine_cannot_do_with_data_is_a_fault_of_both(data: dict[str, Any]) -> None:
    path = Path("$.a[?@ && value(@)]")
    with pytest.raises(BadPath, match="cannot be evaluated"):
        path.selects({"a": [1]})
    with pytest.raises(BadPath, match="cannot be evaluated"):
        path.first({"a": [7]})
    assert not path.selects(data)


def test_a_path_through_a_large_event_takes_no_long_time() -> None:
    """1 MiB of data and the worst allowed filter: every node is visited once for each of its parts."""
    data = {"data": [{"a": [0] * 8, "b": 1} for _ in range(20_000)]}
    path = Path("$.data[?@.a[?@ == 1] || @.b == 2 || @.c == 3]")
    began = time.process_time()
    assert not path.selects(data)
    assert time.process_time() - began < 5.0


def test_a_path_may_not_select_one_node_again_in_each_of_its_parts() -> None:
    """Sixty levels of `[0,0]` would visit 2^60 nodes."""
    with pytest.raises(BadPath, match="several selectors"):
        Path("$.data" + "[0,0]" * 60 + ".x")


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("iris", "iris"),
        ("$.a[?@.t == 'x'].v", 1),
        ("{$.a[0].v}", 1),
        ("v{$.a[0].v}-{$.f}-{$.b}", "v1-1.5-true"),
        ("{$['a'][?@.t == '}'].v}", None),
        ("v{$.n}", None),
        ("v{$.o}", None),
        ("{braces} stay", "{braces} stay"),
        ("$.a[1].v | label", "two"),
        ("x-{$.a[1].v | label}", "x-two"),
        ("$.e | label", None),
    ],
)
def test_a_template_is_a_text_a_path_or_both(template: str, value: Any) -> None:
    assert Template(template).value(DATA) == value


def test_the_first_alternative_with_a_value_counts() -> None:
    assert Alternatives(["$.missing", "$.n", "$.e", "$.o", "$.a[0].v"]).text(DATA) == "1"
    assert Alternatives(["$.e", "$.o"]).value(DATA) == {"k": "v"}
    assert Alternatives("$.missing").text(DATA) is None


def test_as_much_of_a_template_as_there_is() -> None:
    assert Alternatives("{$.a[0].v}/{$.missing}").partial(DATA) == "1/"
    assert Alternatives("{$.missing}/{$.n}").partial(DATA) == ""
    assert Alternatives("constant").partial(DATA) == ""


@pytest.mark.parametrize(
    ("text", "made"),
    [("Fraud_Model 2", "fraud-model-2"), ("iris", "iris"), ("--Ä--", None), ("a.b/c", "a-b-c")],
)
def test_a_label_is_a_name_as_models_have_them(text: str, made: str | None) -> None:
    assert label(text) == made


def test_an_address_is_one_that_others_can_resolve() -> None:
    assert (address("s3://a/b"), address("models:/m-1")) == ("s3://a/b", None)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (f"pkg:oci/iris@{DIGEST}?repository_url=r.example.org/m/iris", f"oci://r.example.org/m/iris@{DIGEST}"),
        (f"pkg:oci/iris@{DIGEST}?repository_url=https://r.example.org/iris", f"oci://r.example.org/iris@{DIGEST}"),
        ("pkg:oci/iris?repository_url=r.example.org/iris&tag=7", "oci://r.example.org/iris:7"),
        (f"pkg:oci/iris@{DIGEST}", None),
        ("pkg:oci/iris?repository_url=r.example.org/iris", None),
        ("pkg:huggingface/microsoft/deberta-v3-base@559062ad", "hf://microsoft/deberta-v3-base@559062ad"),
        ("pkg:huggingface/gpt2", "hf://gpt2"),
        ("pkg:generic/iris@7?download_url=https://x.example.org/iris.onnx", "https://x.example.org/iris.onnx"),
        ("pkg:golang/x/y@1", None),
        ("no purl", None),
    ],
)
def test_a_package_url_has_the_address_that_we_can_load_from(text: str, made: str | None) -> None:
    assert purl(text) == made

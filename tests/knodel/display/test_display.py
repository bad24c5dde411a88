"""Results as notebooks and terminals show them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from knodel.display import html
from knodel.display.numbers import short_uri
from tests.knodel.display.samples import (
    BROKEN,
    CHAT,
    EVIL,
    EXPLANATION,
    HISTORY,
    NOTICES,
    PREDICTION,
    RESULTS,
    SPLIT,
    STEP,
    model,
)

VOID = {"rect"}


class Page(HTMLParser):
    """The elements of a page, which has to be well-formed, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: type(one).__name__)
def test_a_page_is_well_formed_escaped_and_alone(result: Any) -> None:
    content = result._repr_html_()
    page = Page(content)

    assert {tag for tag, _ in page.elements} <= {
        "div", "span", "table", "thead", "tbody", "tr", "th", "td", "pre", "svg", "title", "rect",
    }  # fmt: skip
    assert EVIL not in content
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not page.attributes("src") + page.attributes("href")
    styles = ";".join(page.attributes("style"))
    assert "url(" not in styles
    assert not re.search(r"(?<!-)color:#(000|fff)", styles)  # text has the colour of the notebook


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: type(one).__name__)
def test_each_picture_has_a_text(result: Any) -> None:
    page = Page(result._repr_html_())
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert all(attributes.get("aria-label") for attributes in pictures)


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        (
            model(),
            [
                "Model iris",
                "1 of 2 ready, 1 starting",
                "abababababab",
                "90 %, version 1, tag stable",
                EVIL,
                "step 1 of 3",
            ],
        ),
        (BROKEN, ["not ready: " + EVIL]),
        (HISTORY, ["iris-00001", "promoted", "rolled back", "2026-11-26 04:00:00", "cdcdcdcdcdcd"]),
        (SPLIT, ["iris-00001", "10 %", "0 %"]),
        (STEP, ["Rollout of iris", "wait", "needs 40 more requests", "400", "0.5%", "4.1 ms", "5.2 ms"]),
        (
            EXPLANATION,
            ["0 → 1", "8 slots busy", "cold start of iris-00001 in 812 ms", "420.5 ms", "in the server: load 290 ms"],
        ),
        (CHAT, ["Answer of llm", "llm-00001", "7 tokens of the prompt", "20 tokens of the answer, cut off", EVIL]),
        (
            PREDICTION,
            [
                "4.3 ms",
                "label BYTES [25]",
                "probabilities_2",
                "0.25",
                EVIL,
                "5 more rows",
                "waited for a replica",
                "the last 3 calls",
                "median 4.3 ms, longest 512 ms",
            ],
        ),
    ],
)
def test_a_page_has_the_numbers(result: Any, texts: list[str]) -> None:
    shown = Page(result._repr_html_()).text
    for text in texts:
        assert text in shown


def test_the_parts_of_a_bar_have_their_sizes() -> None:
    page = Page(SPLIT._repr_html_())
    assert "traffic: iris-00001 90 %, version 1, tag stable, iris-00002 10 %" in page.attributes("aria-label")[0]
    flexes = [float(match[1]) for style in page.attributes("style") if (match := re.search(r"flex:([\d.]+)", style))]
    assert flexes == [0.9, 0.1]


def test_the_columns_of_a_sparkline_have_their_heights() -> None:
    page = Page(html.sparkline("latency", [1, 0, 4]))
    assert page.attributes("height") == ["0.250", "0.000", "1.000"]
    assert Page(html.sparkline("nothing", [])).text == "nothing"


def test_a_table_leaves_out_empty_columns() -> None:
    page = Page(html.table(["a", "b"], [[1, ""], [2, ""]]))
    assert page.text == "a12"


@pytest.mark.parametrize(("result", "text"), [
    (BROKEN, f"Model default/broken: not ready: {EVIL}, 1 of 2 replicas ready"),
    (NOTICES, f"""\
AT  TYPE  REASON  MESSAGE  TIMES
2026-11-26 04:00:00  Normal  Scaled  0 → 1
2026-11-26 04:00:00  Warning  DigestMismatch  {EVIL}  3"""),
    (SPLIT, "90 % iris-00001, 10 % iris-00002, 0 % old"),
    (STEP, f"Rollout of iris: Progressing, step 1 of 3, 10 % iris-00002, judge: wait ({EVIL}; needs 40 more requests)"),
    (HISTORY, f"""\
REVISION  VERSION  OUTCOME  CAUSE  MADE  DIGEST
iris-00001  1  promoted  deploy  2026-11-26 04:00:00  cdcdcdcdcdcd
iris-00002  {EVIL}  rolled back  event  2026-11-26 04:00:00
iris-00003  3  2026-11-26 04:00:00"""),
])  # fmt: skip
def test_a_terminal_shows_text(result: Any, text: str) -> None:
    assert re.sub(" {2,}", "  ", repr(result)) == text


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: type(one).__name__)
def test_each_result_has_a_text(result: Any) -> None:
    assert repr(result)
    assert "Displayed object" not in repr(result)


@pytest.mark.parametrize(("uri", "short"), [
    ("s3://models/iris/7/", "s3://models/iris/7/"),
    ("file:///tmp/knodel-tests-4ftmv2wl/tmp/knodel-jzg/churn", "file:///tmp/…/churn"),
    ("s3://models/team/department/iris/2026-11-26/model.onnx", "s3://models/…/model.onnx"),
    (f"hf://{'x' * 50}", f"hf://{'x' * 50}"),
    ("", ""),
])  # fmt: skip
def test_the_middle_of_a_long_uri_is_left_out(uri: str, short: str) -> None:
    assert short_uri(uri) == short

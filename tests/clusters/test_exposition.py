"""Histograms in Prometheus' text format, and OpenMetrics; the rest is tested with the manager's pages."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from clusters.net.exposition import (
    CONTENT_TYPE,
    OPENMETRICS_CONTENT_TYPE,
    Buckets,
    Exemplar,
    Family,
    Histogram,
    page_of,
    render,
    wants_openmetrics,
)

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The header `Accept` of Prometheus 2.42."""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
EXEMPLAR = Exemplar(TRACE, SPAN, 0.4, 1_700_000_000.25)
TRACED = Histogram("a_seconds", "Times.", (0.5, 2), (Buckets({}, (3, 0, 1), 9.25, (EXEMPLAR, None, None)),))


def test_buckets_add_up_and_the_last_has_no_bound() -> None:
    page = render([Histogram("a_seconds", "Times.", (0.5, 2), (Buckets({"x": "y"}, (3, 0, 1), 9.25),))])

    assert page.splitlines() == [
        "# HELP a_seconds Times.",
        "# TYPE a_seconds histogram",
        'a_seconds_bucket{x="y",le="0.5"} 3',
        'a_seconds_bucket{x="y",le="2.0"} 3',
        'a_seconds_bucket{x="y",le="+Inf"} 4',
        'a_seconds_sum{x="y"} 9.25',
        'a_seconds_count{x="y"} 4',
    ]


def test_openmetrics_has_exemplars_and_a_reader_of_it_understands_the_page() -> None:
    counter = Family("b_total", "counter", "Things.", (({"x": 'q"\\\n'}, 3.0),))
    page = page_of([TRACED, counter, Family("c", "gauge", "Now.", (({}, 0.5),))], PROMETHEUS)

    assert page.content_type == OPENMETRICS_CONTENT_TYPE
    found = {family.name: family for family in text_string_to_metric_families(page.text)}  # type: ignore[no-untyped-call]
    assert {name: family.type for name, family in found.items()} == {
        "a_seconds": "histogram", "b": "counter", "c": "gauge",
    }  # fmt: skip
    first, second, *_ = found["a_seconds"].samples
    assert first.labels == {"le": "0.5"} and second.exemplar is None
    assert first.exemplar.labels == {"trace_id": TRACE, "span_id": SPAN}
    assert (first.exemplar.value, float(first.exemplar.timestamp)) == (0.4, 1_700_000_000.25)
    assert found["b"].samples[0][:3] == ("b_total", {"x": 'q"\\\n'}, 3.0)


def test_the_older_format_has_no_exemplars() -> None:
    page = page_of([TRACED], "text/plain")
    assert (page.content_type, "#" in page.text.partition("TYPE")[2], "EOF" in page.text) == (
        CONTENT_TYPE,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0", True),
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.1,text/plain", False),
        ("application/openmetrics-text;q=much,text/plain;q=0.1", False),
    ],
)
def test_openmetrics_is_for_readers_that_prefer_it(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted

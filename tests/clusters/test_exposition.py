"""Histograms in Prometheus' text format; the rest is tested with the manager's pages."""

from __future__ import annotations

from clusters.net.exposition import Buckets, Histogram, render


def test_buckets_add_up_and_the_last_has_no_bound() -> None:
    page = render([Histogram("a_seconds", "Times.", (0.5, 2), (Buckets({"x": "y"}, (3, 0, 1), 9.25),))])

    assert page.splitlines() == [
        "# HELP a_seconds Times.",
        "# TYPE a_seconds histogram",
        'a_seconds_bucket{x="y",le="0.5"} 3',
        'a_seconds_bucket{x="y",le="2"} 3',
        'a_seconds_bucket{x="y",le="+Inf"} 4',
        'a_seconds_sum{x="y"} 9.25',
        'a_seconds_count{x="y"} 4',
    ]

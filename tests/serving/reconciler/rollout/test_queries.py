"""Variables in a judge's query."""

from __future__ import annotations

import pytest

from serving.reconciler.rollout.judging.queries import expand_queries
from serving.types.rollout import MetricRule


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ('rate(e{revision=~"$candidate"}[1m])', 'rate(e{revision=~"m-gpu-00002|m-v100-00002"}[1m])'),
        ('e{revision=~"$stable"} / $stable_', 'e{revision=~"m-00001"} / $stable_'),
        ("e{namespace='$namespace', model='$model'}", "e{namespace='shop', model='m'}"),
        ('e{path=~"^/v2/.*$"}', 'e{path=~"^/v2/.*$"}'),
        ("$candidates", "$candidates"),
    ],
)
def test_a_query_is_asked_about_the_versions_of_the_rollout(query: str, asked: str) -> None:
    rules = [MetricRule("one", query, 0.5)]
    stable, candidate = ["m-00001"], ["m-v100-00002", "m-gpu-00002"]
    made = expand_queries(rules, namespace="shop", model="m", stable=stable, candidate=candidate)
    assert made == (MetricRule("one", asked, 0.5),)

"""What stands in a judge's query for the versions that it is about: names that are known only when it is asked. Pure.

    $candidate, $stable     revisions of the version; with variants several, joined by `|`: write revision=~"$candidate"
    $model, $namespace      the Model's

Names are Grafana's kind of variable, which PromQL has no other meaning for; what is no such name stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from serving.types.rollout import MetricRule

_VARIABLE = re.compile(r"\$(candidate|stable|model|namespace)\b")


def filled(
    rules: Collection[MetricRule], *, namespace: str, model: str, stable: Collection[str], candidate: Collection[str]
) -> tuple[MetricRule, ...]:
    """The rules with queries about these revisions; names of Kubernetes need no escape in a query."""
    values = {
        "namespace": namespace,
        "model": model,
        "stable": "|".join(sorted(stable)),
        "candidate": "|".join(sorted(candidate)),
    }
    return tuple(replace(rule, query=_fill(rule.query, values)) for rule in rules)


def _fill(query: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values[found[1]], query)

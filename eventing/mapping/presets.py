"""Mappings that come with the platform: finished jobs, MLflow's registry, CDEvents. This module only contains data.

A preset is a list of rules in the form of `EventSource.spec.mapping`. The first rule whose types and conditions all
match is applied. If none matches, the ledger records the reason of the rule that matched the most conditions.

Sources: `jobs.py`; mlflow `webhooks/delivery.py` and `webhooks/types.py` (3.4); cdevents/spec
`continuous-integration.md`, "artifact published", and `cloudevents-binding.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from eventing.mapping.jobs import JOB_RULES

PLAIN_JSON: Final = "dev.knodel.foreign.v1"
"""Type of the event for a JSON document that is not a CloudEvent. Only a mapping gives it a meaning."""
JOB: Final = "job"
MLFLOW: Final = "mlflow"
CDEVENTS: Final = "cdevents"
MLFLOW_TAG: Final = "knodel.storageUri"
"""Tag of a model version in MLflow: the storage URI of its artifacts, if only MLflow can resolve its `source`."""

_MLFLOW: Final[Mapping[str, Any]] = {
    "types": [PLAIN_JSON],
    "time": "$.data.timestamp",
    "model": "$.data.data.name | label",
    "version": "$.data.data.version",
}
_MLFLOW_RULES: Final[Sequence[Mapping[str, Any]]] = (
    {
        **_MLFLOW,
        "when": [
            {
                "path": "$[?@.entity == 'model_version' && @.action == 'created']",
                "otherwise": "it is not a new model version",
            },
        ],
        "id": "{$.data.data.name}/{$.data.data.version}",
        "storageUri": [f"$.data.data.tags['{MLFLOW_TAG}']", "$.data.data.source | address"],
    },
    {
        **_MLFLOW,
        "when": [
            {
                "path": "$[?@.entity == 'model_version_tag' && @.action == 'set']",
                "otherwise": "it is neither a new model version nor a tag of one",
            },
            {"path": f"$.data[?@.key == '{MLFLOW_TAG}']", "otherwise": f"the tag is not {MLFLOW_TAG}"},
        ],
        "id": "{$.data.data.name}/{$.data.data.version}/{$.data.timestamp}",  # users may set the tag again
        "storageUri": "$.data.data.value",
    },
)

_CDEVENTS_RULES: Final[Sequence[Mapping[str, Any]]] = (
    {
        "types": ["dev.cdevents.artifact.published.*"],
        "time": "$.data.context.timestamp",
        "model": "$.data.customData.model",
        "storageUri": ["$.data.customData.storageUri", "$.data.subject.id | purl"],
        "version": "$.data.customData.version",
        "modelFormat": "$.data.customData.modelFormat",
        "metrics": "$.data.customData.metrics",
    },
)

PRESETS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = MappingProxyType(
    {JOB: JOB_RULES, MLFLOW: _MLFLOW_RULES, CDEVENTS: _CDEVENTS_RULES}
)
"""Presets by the name in `mapping.preset`."""

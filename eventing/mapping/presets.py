"""Mappings that come with the platform: finished jobs, MLflow's registry, CDEvents. Data alone.

A preset is a list of rules in the form of `EventSource.spec.mapping`; the first whose types and conditions all hold is
taken. When none does, the reason of the one that came farthest stands in the ledger.

Sources: `jobs.py`; mlflow `webhooks/delivery.py` and `webhooks/types.py` (3.4); cdevents/spec
`continuous-integration.md`, "artifact published", and `cloudevents-binding.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from eventing.mapping.jobs import JOB_RULES

FOREIGN: Final = "dev.knodel.foreign.v1"
"""Type of the event that is made from a document that is not a CloudEvent. A mapping gives it one of ours."""
JOB: Final = "job"
MLFLOW: Final = "mlflow"
CDEVENTS: Final = "cdevents"
MLFLOW_TAG: Final = "knodel.storageUri"
"""Tag of a model version in MLflow: where its artifacts lie, when its `source` is a name that MLflow alone resolves."""

_MLFLOW: Final[Mapping[str, Any]] = {
    "types": [FOREIGN],
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
                "otherwise": "it is no new version of a model",
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
                "otherwise": "it is no new version of a model, and no tag of one",
            },
            {"path": f"$.data[?@.key == '{MLFLOW_TAG}']", "otherwise": f"it is another tag than {MLFLOW_TAG}"},
        ],
        "id": "{$.data.data.name}/{$.data.data.version}/{$.data.timestamp}",  # people may set it again
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
"""By the name in `mapping.preset`."""

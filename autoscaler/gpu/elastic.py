"""Elastic jobs: how their size is read and changed. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from clusters.base.objects import Kind, Object, annotations_of, condition_of

ANNOTATION_ELASTIC: Final = "autoscaling.knodel.dev/elastic"
JOB: Final = Kind("batch", "v1", "Job", "jobs")
ELASTIC_KINDS: Final = (JOB,)


@dataclass(frozen=True, slots=True)
class ElasticJob:
    size: int
    least: int
    most: int
    template: Object
    over: bool
    patch_type: Literal["merge", "json"] = "merge"

    def patch(self, size: int) -> Any:
        return {"spec": {"parallelism": size}}


def read_job(kind: Kind, obj: Object) -> ElasticJob | None:
    try:
        given = json.loads(annotations_of(obj).get(ANNOTATION_ELASTIC, ""))
    except ValueError:
        return None
    spec = obj["spec"]
    over = any((condition_of(obj, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed"))
    return ElasticJob(int(spec.get("parallelism", 1)), given["min"], given["max"], spec["template"], over)

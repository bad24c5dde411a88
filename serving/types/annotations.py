"""Knodel's labels and annotations under `knodel.dev/`, each with its meaning and an example value.

Those of the autoscaler (`autoscaling.knodel.dev/…`) are in `autoscaler.types`.
"""

from __future__ import annotations

LABEL_MODEL = "knodel.dev/model"
"""On all objects of a Model, including Revisions, PodAutoscalers and Pods: the Model's name (`magika`)."""

LABEL_ALLOW_CODE = "knodel.dev/allow-code"
"""On a Namespace: whether Models in it may have formats that run code of their artifact (`true`)."""

LABEL_GENERATION = "knodel.dev/generation"
"""On every template: the version, as a hash of the templates; the same in all variants (`9f2c4a81d0`)."""

LABEL_VARIANT = "knodel.dev/variant"
"""On a variant's template: the variant's name (`v100`)."""

LABEL_GROUP_ROLE = "knodel.dev/group-role"
"""On the Pods of a replica with workers: `leader` (from the template) or `worker`."""

LABEL_GROUP = "knodel.dev/group"
"""On a worker's Pod: the uid of its leader's Pod."""

ANNOTATION_WORKERS = "knodel.dev/workers"
"""On the template, and so on the leader's Pod: `spec.workers` as JSON (`{"count":2,"onLoss":"restart",…}`)."""

ANNOTATION_WORKERS_STATE = "knodel.dev/workers-state"
"""On a leader's Pod: the state of its workers as JSON (`{"status":"False","reason":"Unschedulable",…}`)."""

ANNOTATION_VERSION = "knodel.dev/version"
"""On the template and the Revision: `spec.version` (`7`)."""

ANNOTATION_STORAGE_URI = "knodel.dev/storage-uri"
"""On the template and the Revision: `spec.storageUri` (`https://models.example.org/magika.onnx`)."""

ANNOTATION_DIGEST = "knodel.dev/digest"
"""On the template and the Revision: `spec.digest` (`sha256:9f…`)."""

ANNOTATION_VARIANTS = "knodel.dev/variants"
"""On every variant's template: all variants of the version, sorted (`a100,v100`). A version needs all of them."""

ANNOTATION_PERCENT = "knodel.dev/percent"
"""On a variant's Configuration: its last declared percent (`60`), for a rollback after the variants were removed."""

ANNOTATION_CAUSE = "knodel.dev/cause"
"""On a Model, set by the client that changes it: the cause (`{"by":"event","id":"42","source":"/train/magika"}`)."""

ANNOTATION_ROLLOUT = "knodel.dev/rollout"
"""On a Model, set by a user: a command for the rollout of one revision. `pause@magika-00002` holds while it is set;
`abort` and `promote` end the rollout."""

ANNOTATION_RESTART = "knodel.dev/restart"
"""On a Model, set by a user: Pods to replace one after another, without a new version
(`magika-00001-deployment-7d4b9-x2x8q,magika-00001-deployment-7d4b9-9kq7z`). Names of other Pods have no effect."""

ANNOTATION_TRACEPARENT = "knodel.dev/traceparent"
"""On a Model: the trace of the event that changed it (`00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`)."""

ANNOTATION_APPLIED = "knodel.dev/applied"
"""On objects that Knodel applies: a hash of what was applied, so that a pass without changes sends no request."""

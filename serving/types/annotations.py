"""Every label and annotation of ours under `knodel.dev/`, each with its meaning and an example value.

Those of the autoscaler (`autoscaling.knodel.dev/…`) stand in `autoscaler.types`.
"""

from __future__ import annotations

LABEL_MODEL = "knodel.dev/model"
"""On everything made for a Model, down to Revisions, PodAutoscalers and Pods: the Model's name (`magika`)."""

LABEL_ALLOW_CODE = "knodel.dev/allow-code"
"""On a Namespace: whether Models in it may have formats that run code of their artifact (`true`)."""

LABEL_GENERATION = "knodel.dev/generation"
"""On every template: which version it is, the same in all variants: a hash of all that runs (`9f2c4a81d0`)."""

LABEL_VARIANT = "knodel.dev/variant"
"""On a variant's template: the variant's name (`v100`)."""

ANNOTATION_VERSION = "knodel.dev/version"
"""On the template, so on the Revision: `spec.version` (`7`)."""

ANNOTATION_STORAGE_URI = "knodel.dev/storage-uri"
"""On the template, so on the Revision: `spec.storageUri` (`https://models.example.org/magika.onnx`)."""

ANNOTATION_DIGEST = "knodel.dev/digest"
"""On the template, so on the Revision: `spec.digest` (`sha256:9f…`)."""

ANNOTATION_VARIANTS = "knodel.dev/variants"
"""On every variant's template: all variants of the version, sorted (`a100,v100`): complete only with all of them."""

ANNOTATION_PERCENT = "knodel.dev/percent"
"""On a variant's Configuration: the percent last declared for it (`60`), for a rollback after the variants are gone."""

ANNOTATION_CAUSE = "knodel.dev/cause"
"""On a Model, by who changes it: why, as JSON (`{"by":"event","id":"42","source":"/train/magika"}`)."""

ANNOTATION_ROLLOUT = "knodel.dev/rollout"
"""On a Model, by a person: what they want of the rollout of one revision, for as long as it stands
(`pause@magika-00002`); also `abort` and `promote`, which end it."""

ANNOTATION_TRACEPARENT = "knodel.dev/traceparent"
"""On a Model: the trace of the event that changed it (`00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`)."""

ANNOTATION_APPLIED = "knodel.dev/applied"
"""On objects that we apply: hash of what was applied, so that a pass that would change nothing asks for nothing."""

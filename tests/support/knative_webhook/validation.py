"""Knative's admission rules: one validator for each kind, which returns all faults with field paths.

The embedded cluster has no such rules, because its callers cannot write Knative's kinds. `tests/golden` compares them
with the answers of the real webhook. Source: knative/serving `pkg/apis/serving/v1/*_validation.go`, and the schemas of
its CRDs. Fields that Knative fills in (`clusters.embedded.knative.defaults`) may be absent. One feature of Knative is
rejected: a name for the Revision in `template.metadata.name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clusters.base.errors import FieldError
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_CONFIGURATION,
    LABEL_SERVICE,
    REVISION,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    labels_of,
    name_of,
)
from clusters.embedded.knative import names
from clusters.embedded.store.admission import Validator
from tests.support.knative_webhook.annotation_rules import (
    ALLOW_ZERO_INITIAL_SCALE,
    check_autoscaling,
    check_no_autoscaling,
    check_other_components,
    check_seconds,
)
from tests.support.knative_webhook.checks import Faults
from tests.support.knative_webhook.pod_rules import MULTI_CONTAINER, check_pod_spec
from tests.support.knative_webhook.traffic_rules import check_traffic
from tests.support.knative_webhook.volume_rules import EMPTY_DIR

KNATIVE_FEATURES = frozenset({MULTI_CONTAINER, EMPTY_DIR})
"""The flags of config-features and config-autoscaler that are on by default."""

PLATFORM_FEATURES = KNATIVE_FEATURES | {ALLOW_ZERO_INITIAL_SCALE}
"""The flags that Knodel needs: the seed of a warm pool has no replicas."""

LARGEST_CONCURRENCY = 1000  # container-concurrency-max-limit of config-defaults
LARGEST_INT64 = 2**63 - 1
LARGEST_TIMEOUT = 600  # s, max-revision-timeout-seconds of config-defaults

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_REVISION_FIELDS = (
    "containerConcurrency",
    "timeoutSeconds",
    "responseStartTimeoutSeconds",
    "idleTimeoutSeconds",
)
_TEMPLATE_METADATA = ("labels", "annotations", "creationTimestamp")

Check = Callable[[Faults, Object], None]


def validators(features: frozenset[str] = KNATIVE_FEATURES) -> Mapping[Kind, Validator]:
    """Return the validators of a Knative with these feature flags on."""
    return MappingProxyType(
        {
            SERVICE: _validator(features, _check_service),
            CONFIGURATION: _validator(features, _check_configuration),
            ROUTE: _validator(features, _check_route),
            REVISION: _validator(features, _check_revision),
        }
    )


def _validator(features: frozenset[str], check: Check) -> Validator:
    def validate(old: Object | None, new: Object) -> Sequence[FieldError]:
        faults = Faults(features)
        faults.known_fields("", new, _TOP)
        name = faults.string("metadata.name", new["metadata"].get("name"))
        if name:
            faults.dns_1035("metadata.name", name)
        if check is _check_revision and old is not None:
            _check_unchanged(faults, old, new)
        else:
            check(faults, new)
        return tuple(faults.found)

    return validate


def _check_service(faults: Faults, service: Object) -> None:
    annotations = _annotations(faults, service["metadata"], "metadata")
    check_no_autoscaling(faults, "metadata.annotations", annotations)
    check_seconds(faults, "metadata.annotations", annotations, names.ANNOTATION_ROLLOUT_DURATION)
    spec = faults.map("spec", service.get("spec"))
    faults.known_fields("spec", spec, ("template", "traffic"))
    _check_template(faults, "spec.template", spec.get("template"))
    check_traffic(faults, "spec.traffic", spec.get("traffic"), _name(service), in_service=True)


def _check_configuration(faults: Faults, configuration: Object) -> None:
    annotations = _annotations(faults, configuration["metadata"], "metadata")
    check_no_autoscaling(faults, "metadata.annotations", annotations)
    _check_owner_label(faults, configuration, LABEL_SERVICE, SERVICE)
    spec = faults.map("spec", configuration.get("spec"))
    faults.known_fields("spec", spec, ("template",))
    _check_template(faults, "spec.template", spec.get("template"))


def _check_route(faults: Faults, route: Object) -> None:
    annotations = _annotations(faults, route["metadata"], "metadata")
    check_no_autoscaling(faults, "metadata.annotations", annotations)
    check_seconds(faults, "metadata.annotations", annotations, names.ANNOTATION_ROLLOUT_DURATION)
    _check_owner_label(faults, route, LABEL_SERVICE, SERVICE)
    spec = faults.map("spec", route.get("spec"))
    faults.known_fields("spec", spec, ("traffic",))
    check_traffic(faults, "spec.traffic", spec.get("traffic"), _name(route), in_service=False)


def _check_revision(faults: Faults, revision: Object) -> None:
    annotations = _annotations(faults, revision["metadata"], "metadata")
    check_autoscaling(faults, "metadata.annotations", annotations)
    _check_owner_label(faults, revision, LABEL_CONFIGURATION, CONFIGURATION)
    _check_revision_spec(faults, "spec", revision.get("spec"))


def _check_unchanged(faults: Faults, old: Object, new: Object) -> None:
    """Validate labels and annotations of a Revision, and reject changes of its spec."""
    check_autoscaling(faults, "metadata.annotations", _annotations(faults, new["metadata"], "metadata"))
    _check_owner_label(faults, new, LABEL_CONFIGURATION, CONFIGURATION)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for field in sorted({*before, *after}):
        if before.get(field) != after.get(field):
            faults.add(f"spec.{field}", "Immutable fields changed: change the template instead")


def _check_template(faults: Faults, path: str, value: object) -> None:
    if value is None:
        faults.add(path, "missing field: a template is required")
        return
    template = faults.map(path, value)
    faults.known_fields(path, template, ("metadata", "spec"))
    metadata = faults.map(f"{path}.metadata", template.get("metadata"))
    faults.known_fields(f"{path}.metadata", metadata, (*_TEMPLATE_METADATA, "name"))
    if metadata.get("name"):
        faults.add(f"{path}.metadata.name", "must not be set: the names of Revisions are generated here")
    annotations = _annotations(faults, metadata, f"{path}.metadata")
    check_autoscaling(faults, f"{path}.metadata.annotations", annotations)
    check_other_components(faults, f"{path}.metadata.annotations", annotations)
    check_seconds(faults, f"{path}.metadata.annotations", annotations, names.ANNOTATION_PROGRESS_DEADLINE)
    labels = faults.map(f"{path}.metadata.labels", metadata.get("labels"))
    for key, string in labels.items():
        faults.string(f"{path}.metadata.labels[{key}]", string)
    _check_revision_spec(faults, f"{path}.spec", template.get("spec"))


def _check_revision_spec(faults: Faults, path: str, value: object) -> None:
    spec = faults.map(path, value)
    check_pod_spec(faults, path, spec, _REVISION_FIELDS)
    concurrency = spec.get("containerConcurrency")
    faults.integer(f"{path}.containerConcurrency", concurrency, 0, LARGEST_CONCURRENCY)
    faults.integer(f"{path}.timeoutSeconds", spec.get("timeoutSeconds"), 0, LARGEST_TIMEOUT)
    for field in ("responseStartTimeoutSeconds", "idleTimeoutSeconds"):  # Knative takes any number
        faults.integer(f"{path}.{field}", spec.get(field), -LARGEST_INT64, LARGEST_INT64)


def _check_owner_label(faults: Faults, obj: Object, label: str, owner: Kind) -> None:
    """Reject a label with the name of a parent on an object that this parent does not own."""
    value = labels_of(obj).get(label)
    if value is None:
        return
    owners = obj["metadata"].get("ownerReferences") or ()
    if not any(reference.get("kind") == owner.kind and reference.get("name") == value for reference in owners):
        rule = f"remove the label, as the {owner.kind} {value!r} does not own this object"
        faults.add(f"metadata.labels[{label}]", f"missing its ownerReference: {rule}")


def _annotations(faults: Faults, metadata: Mapping[str, Any], path: str) -> Mapping[str, str]:
    found = faults.map(f"{path}.annotations", metadata.get("annotations"))
    return {key: faults.string(f"{path}.annotations[{key}]", string) for key, string in found.items()}


def _name(obj: Object) -> str:
    return name_of(obj) if isinstance(obj["metadata"].get("name"), str) else ""


VALIDATORS: Mapping[Kind, Validator] = validators()
"""The validators of a Knative with the default flags."""

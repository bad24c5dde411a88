"""Make the Knative objects of a Model (one Service, or Configurations and one Route) and its scaling policy. Pure.

`traffic` is a list of Knative's traffic targets (`serving.reconciler.rollout.split` decides them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from autoscaler.gpu.shapes import ANNOTATION_PRIORITY, ANNOTATION_WEIGHT
from autoscaler.types import Policy
from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_SERVICE,
    LABEL_VISIBILITY,
    MODEL,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    owner_reference,
)
from serving.makers import names
from serving.makers.adapters import make_adapters
from serving.makers.names import digest_of
from serving.makers.pod_spec import make_template, server_settings
from serving.makers.targets import first_traffic
from serving.types.annotations import ANNOTATION_APPLIED, ANNOTATION_PERCENT, LABEL_GENERATION, LABEL_MODEL
from serving.types.model import Model, loads_adapters
from serving.types.scaling import GpuShare, Scaling
from serving.types.settings.runtimes import runtime_fault
from serving.types.settings.settings import Settings
from serving.types.validation import read_model


def make_service(model: Model, settings: Settings, traffic: Sequence[Object]) -> Object:
    """Return the Knative Service of a Model in the shape Service.

    Knative fills in the Service's own Configuration; naming it in a target is not allowed.
    """
    targets = [{name: value for name, value in target.items() if name != "configurationName"} for target in traffic]
    spec = {"template": make_templates(model, settings)[names.configuration(model)], "traffic": targets}
    return _make(SERVICE, names.service(model), model, spec, labels=_visibility(model))


def make_configurations(model: Model, settings: Settings) -> list[Object]:
    """Return the Configurations that the Model controls: one for each variant, or that which a Service would create."""
    shares = {names.variant_configuration(model, variant): variant.percent for variant in model.spec.variants}
    return [
        _make(
            CONFIGURATION,
            name,
            model,
            {"template": template},
            annotations={ANNOTATION_PERCENT: str(shares[name])} if name in shares else {},
        )
        for name, template in make_templates(model, settings).items()
    ]


def make_route(model: Model, traffic: Sequence[Object]) -> Object:
    """Return the Route that the Model controls. Targets without a name get Configuration NAME, as with a Service."""
    own = {"configurationName": names.configuration(model)}
    targets = [target if target.get("revisionName") else {**own, **target} for target in traffic]
    return _make(ROUTE, names.route(model), model, {"traffic": targets}, labels=_visibility(model))


def make_templates(model: Model, settings: Settings) -> dict[str, Object]:
    """Return the revision template of each Configuration, all with the label of their version.

    Every Revision also has the Service's label from the start, whatever created it. The Route of a Service may name
    only Revisions with this label (knative/serving `pkg/reconciler/route/traffic`). A Revision that was created without
    the Service must be usable in a canary or a rollback when the Service owns the Route.
    """
    spec = model.spec
    needed = "" if spec.ray.service else spec.model_format  # the engine of a service is elsewhere
    variants, server = spec.variants, server_settings(spec.runtime, needed, settings)
    templates = (
        {names.variant_configuration(model, one): make_template(model, one, server) for one in variants}
        if variants
        else {names.configuration(model): make_template(model, None, server)}
    )
    generation = digest_of(templates)
    for template in templates.values():
        template["metadata"]["labels"] |= {LABEL_GENERATION: generation, LABEL_SERVICE: names.service(model)}
    return templates


def generation_of_version(model: Model, settings: Settings) -> str:
    """Return the value of the label `knodel.dev/generation` of the Model's version."""
    template = next(iter(make_templates(model, settings).values()))
    return str(template["metadata"]["labels"][LABEL_GENERATION])


def _make(
    kind: Kind,
    name: str,
    model: Model,
    spec: Object,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    metadata: Object = {"name": name}
    if model.namespace:
        metadata["namespace"] = model.namespace
    metadata |= {"labels": {LABEL_MODEL: model.name, **labels}, "annotations": dict(annotations)}
    if model.uid:  # a Model that was never stored has no uid, and cannot own objects
        metadata["ownerReferences"] = [owner_reference(MODEL, model.object)]
    made: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    metadata["annotations"] = {**annotations, ANNOTATION_APPLIED: digest_of(made)}
    return made


def _visibility(model: Model) -> dict[str, str]:
    return {LABEL_VISIBILITY: model.spec.visibility} if model.spec.visibility != "public" else {}


def render(model_obj: Object, settings: Settings) -> list[Object]:
    """Return the objects that a new Model would get. Raises Invalid."""
    model = read_model(model_obj)
    if fault := runtime_fault(settings.runtimes, model.spec.runtime):
        raise Invalid(f"{MODEL.kind} {model.name}", [FieldError("spec.runtime.name", fault)])
    traffic = first_traffic(model)
    adapters = [make_adapters(model)] if loads_adapters(model.spec) else []
    if not model.spec.variants:
        return [*adapters, make_service(model, settings, traffic)]
    return [*adapters, *make_configurations(model, settings), make_route(model, traffic)]


def make_policy(scaling: Scaling, container_concurrency: int) -> str:
    """Return the value of the annotation for a revision. As in Knative, its hard limit bounds the scale target."""
    target = min(scaling.scale_target, container_concurrency) if container_concurrency else scaling.scale_target
    return Policy(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        scale_target=float(target),
        target_utilization=scaling.target_utilization,
        scale_to_zero_after=scaling.scale_to_zero_after,
        hold_queue=scaling.hold_queue,
        latency_objective=scaling.latency_objective,
        schedules=scaling.schedules,
    ).to_json()


def make_gpu_annotations(share: GpuShare) -> dict[str, str | None]:
    """Return the annotations by which a revision gets GPUs before or after others; None for defaults."""
    return {
        ANNOTATION_PRIORITY: str(share.priority) if share.priority else None,
        ANNOTATION_WEIGHT: f"{share.weight:g}" if share.weight != 1.0 else None,
    }

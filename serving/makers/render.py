"""Render the Knative objects of a Model without a cluster, with the same makers and defaults. Pure."""

from __future__ import annotations

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import MODEL, Object
from serving.makers.knative import make_configurations, make_route, make_service
from serving.makers.targets import first_traffic
from serving.types.settings.runtimes import runtime_fault
from serving.types.settings.settings import Settings
from serving.types.validation import read_model


def render(model_obj: Object, settings: Settings) -> list[Object]:
    """Return the Knative objects that a new Model would get. Raises Invalid."""
    model = read_model(model_obj)
    if fault := runtime_fault(settings.runtimes, model.spec.runtime):
        raise Invalid(f"{MODEL.kind} {model.name}", [FieldError("spec.runtime.name", fault)])
    traffic = first_traffic(model)
    if not model.spec.variants:
        return [make_service(model, settings, traffic)]
    return [*make_configurations(model, settings), make_route(model, traffic)]

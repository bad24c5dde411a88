"""What would be applied for a Model that the cluster does not know yet: the same makers, the same defaults. Pure."""

from __future__ import annotations

from clusters.errors import FieldError, Invalid
from clusters.objects import MODEL, Object
from serving.apis.runtimes import runtime_fault
from serving.apis.settings import Settings
from serving.apis.validation import read_model
from serving.resources.knative import make_configurations, make_route, make_service
from serving.resources.targets import first_traffic


def render(model_obj: Object, settings: Settings) -> list[Object]:
    """The Knative objects of a Model. Raises Invalid."""
    model = read_model(model_obj)
    if fault := runtime_fault(settings.runtimes, model.spec.runtime):
        raise Invalid(f"{MODEL.kind} {model.name}", [FieldError("spec.runtime.name", fault)])
    traffic = first_traffic(model)
    if not model.spec.variants:
        return [make_service(model, settings, traffic)]
    return [*make_configurations(model, settings), make_route(model, traffic)]

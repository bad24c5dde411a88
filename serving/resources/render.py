"""What would be applied for a Model that the cluster does not know yet: the same makers, the same defaults. Pure."""

from __future__ import annotations

from clusters.objects import Object
from serving.apis.settings import Settings
from serving.apis.validation import read_model
from serving.resources.knative import make_configurations, make_route, make_service
from serving.resources.targets import first_traffic


def render(model_obj: Object, settings: Settings) -> list[Object]:
    """The Knative objects of a Model. Raises Invalid."""
    model = read_model(model_obj)
    traffic = first_traffic(model)
    if not model.spec.variants:
        return [make_service(model, settings, traffic)]
    return [*make_configurations(model, settings), make_route(model, traffic)]

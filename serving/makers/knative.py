"""Makers of the Knative objects of a Model: one Service, or Configurations and one Route. Pure.

`traffic` is a list of Knative's traffic targets, which `rollout.split` decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

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
from serving.makers.images import server_of
from serving.makers.pod_spec import make_template
from serving.types.annotations import ANNOTATION_APPLIED, ANNOTATION_PERCENT, LABEL_GENERATION, LABEL_MODEL
from serving.types.model import Model
from serving.types.settings.settings import Settings

HASH_LENGTH = 10
"""Hex digits: 40 bits tell the versions of one Model apart."""


def make_service(model: Model, settings: Settings, traffic: Sequence[Object]) -> Object:
    """The Knative Service of a Model without variants. It fills in its own Configuration, which nobody may name."""
    targets = [{name: value for name, value in target.items() if name != "configurationName"} for target in traffic]
    spec = {"template": make_templates(model, settings)[names.configuration(model)], "traffic": targets}
    return _make(SERVICE, names.service(model), model, spec, labels=_visibility(model))


def make_configurations(model: Model, settings: Settings) -> list[Object]:
    """The Configurations under the Model itself: one for each variant, or the one that a Service would make."""
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
    """The Route under the Model itself. It fills in Configuration NAME where nothing is named, as a Service would."""
    own = {"configurationName": names.configuration(model)}
    targets = [target if target.get("revisionName") else {**own, **target} for target in traffic]
    return _make(ROUTE, names.route(model), model, {"traffic": targets}, labels=_visibility(model))


def make_templates(model: Model, settings: Settings) -> dict[str, Object]:
    """The revision template of each Configuration, all with the label of the version that they make up.

    Every Revision also bears the Service's label from birth, whatever made it: a Route that a Service owns may name
    Revisions with its label only (knative/serving `pkg/reconciler/route/traffic`), and a Revision that was made
    without the Service must be servable, as canary's other part or by a rollback, once the Service owns the Route.
    """
    variants, server = model.spec.variants, server_of(model.spec.runtime, model.spec.model_format, settings)
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
    """The value of the label `knodel.dev/generation` that the Model's version has."""
    template = next(iter(make_templates(model, settings).values()))
    return str(template["metadata"]["labels"][LABEL_GENERATION])


def digest_of(value: Any) -> str:
    """A short hash of a JSON value: the same for the same value, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


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
    if model.uid:  # a Model that was never stored cannot own anything yet
        metadata["ownerReferences"] = [owner_reference(MODEL, model.object)]
    made: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    metadata["annotations"] = {**annotations, ANNOTATION_APPLIED: digest_of(made)}
    return made


def _visibility(model: Model) -> dict[str, str]:
    return {LABEL_VISIBILITY: model.spec.visibility} if model.spec.visibility != "public" else {}

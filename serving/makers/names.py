"""Names of the objects that are made for a Model: one small function each."""

from __future__ import annotations

import re

from serving.types.model import Model, Variant

DIGESTS_PREFIX = "knodel-digests-"


def service(model: Model) -> str:
    """The Knative Service of a Model without variants."""
    return model.name


def route(model: Model) -> str:
    """The Route, whether the Service made it or we did: the host is made of it."""
    return model.name


def configuration(model: Model) -> str:
    """The Configuration that the Knative Service makes."""
    return model.name


def variant_configuration(model: Model, variant: Variant) -> str:
    """The Configuration of one variant."""
    return f"{model.name}-{variant.name}"


def digests(model: Model) -> str:
    """The ConfigMap with the digests that the Model's revisions loaded first; of this Model, not of a namesake."""
    return f"{DIGESTS_PREFIX}{model.uid or model.name}"


def configurations(model: Model) -> tuple[str, ...]:
    """All Configurations that the Model's version has, in the order of the spec."""
    return tuple(variant_configuration(model, variant) for variant in model.spec.variants) or (configuration(model),)


def is_revision_of(configuration: str, revision: str) -> bool:
    """Whether Knative would give this name to a Revision of the Configuration (`magika-00001`)."""
    return bool(re.fullmatch(rf"{re.escape(configuration)}-\d{{5,}}", revision))

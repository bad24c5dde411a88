"""Names of the objects that are made for a Model, and short hashes of what they contain."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from serving.types.model import Model, Variant

DIGESTS_PREFIX = "knodel-digests-"
ADAPTERS_PREFIX = "knodel-adapters-"
HASH_LENGTH = 10
"""Hex digits: 40 bits are enough to distinguish the versions of one Model."""
GROUP_TOKEN_PREFIX = "knodel-group-"  # noqa: S105 - a name


def service(model: Model) -> str:
    """Return the name of the Knative Service of a Model in the shape Service."""
    return model.name


def route(model: Model) -> str:
    """Return the name of the Route, from which Knative makes the host. A Service gives its Route the same name."""
    return model.name


def configuration(model: Model) -> str:
    """Return the name of the Configuration that the Knative Service creates."""
    return model.name


def variant_configuration(model: Model, variant: Variant) -> str:
    """Return the name of a variant's Configuration."""
    return f"{model.name}-{variant.name}"


def digests(model: Model) -> str:
    """Return the name of the ConfigMap with the digests that the Model's revisions loaded first.

    It has the Model's uid, so that a later Model of the same name does not use it.
    """
    return f"{DIGESTS_PREFIX}{model.uid or model.name}"


def adapters(model: Model) -> str:
    """Return the name of the ConfigMap with the adapters of the Model's versions, which their replicas mount."""
    return f"{ADAPTERS_PREFIX}{model.uid or model.name}"


def group_token(model: Model) -> str:
    """Return the name of the Secret with the token of the Model's groups, by which workers and leaders know each other.

    It has the Model's uid, as the name of `digests` has.
    """
    return f"{GROUP_TOKEN_PREFIX}{model.uid or model.name}"


def configurations(model: Model) -> tuple[str, ...]:
    """Return the names of all Configurations of the Model's version, in the order of the spec."""
    return tuple(variant_configuration(model, variant) for variant in model.spec.variants) or (configuration(model),)


def is_revision_of(configuration: str, revision: str) -> bool:
    """Return whether Knative gives such names to Revisions of the Configuration (`magika-00001`)."""
    return bool(re.fullmatch(rf"{re.escape(configuration)}-\d{{5,}}", revision))


def digest_of(value: Any) -> str:
    """Return a short hash of a JSON value that does not depend on the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]

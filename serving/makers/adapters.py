"""Make the ConfigMap with the adapters of a language model that loads them while it serves. Pure.

Its form is that of `serving.modelserver.base.adapter_list`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from clusters.base.objects import MODEL, Object, owner_reference
from serving.engines.base.llm_arguments import ADAPTERS_FILE
from serving.makers import names
from serving.makers.names import digest_of
from serving.makers.pod_spec import make_adapter_entries
from serving.types.annotations import LABEL_MODEL
from serving.types.model import Model


def make_adapter_list(model: Model) -> Object:
    """Return the list of the Model's newest version, with an id that changes with its content."""
    entries = make_adapter_entries(model.spec.llm)
    return {"id": digest_of(entries), "adapters": entries}


def make_adapters(model: Model, former: Mapping[str, Object] = MappingProxyType({})) -> Object:
    """Return the ConfigMap; `former` has the lists of former versions by revision."""
    metadata: Object = {"name": names.adapters(model)}
    if model.namespace:
        metadata["namespace"] = model.namespace
    metadata["labels"] = {LABEL_MODEL: model.name}
    if model.uid:  # a Model that was never stored has no uid, and cannot own objects
        metadata["ownerReferences"] = [owner_reference(MODEL, model.object)]
    content = {"default": make_adapter_list(model), "revisions": dict(former)}
    data = {ADAPTERS_FILE: json.dumps(content, sort_keys=True, separators=(",", ":"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

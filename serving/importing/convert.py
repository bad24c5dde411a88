"""Convert one object by its kind. Pure.

Example:
    convert({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", …}).models
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from clusters.base.objects import MODEL
from serving.importing.conversion import Conversion, ForeignObject, NotConverted
from serving.importing.inference_service import convert_inference_service
from serving.importing.knative_service import convert_knative_service

_CONVERTERS: Final[Mapping[tuple[str, str], Callable[[ForeignObject], Conversion]]] = {
    ("serving.kserve.io", "InferenceService"): convert_inference_service,
    ("serving.kubeflow.org", "InferenceService"): convert_inference_service,
    ("serving.knative.dev", "Service"): convert_knative_service,
}
"""By API group and kind; the group of KServe's first releases was that of Kubeflow."""
_LANGUAGE_MODEL: Final = ("no engine serves large language models", "keep it on KServe")
_RUNTIME: Final = (
    "an image of a model server is not a model",
    "define a runtime in the platform's settings (runtimes), and set spec.runtime.name of Models",
)
_REASONS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("serving.kserve.io", "InferenceGraph"): (
        "a graph of models is not a model",
        "deploy its models; call them in turn from the client, or from a class Model (format python)",
    ),
    ("serving.kserve.io", "TrainedModel"): (
        "it is a model of a server of many models",
        "write a Model with its storageUri, and its framework as modelFormat",
    ),
    ("serving.kserve.io", "ServingRuntime"): _RUNTIME,
    ("serving.kserve.io", "ClusterServingRuntime"): _RUNTIME,
    ("serving.kserve.io", "LLMInferenceService"): _LANGUAGE_MODEL,
    ("serving.kserve.io", "LLMInferenceServiceConfig"): _LANGUAGE_MODEL,
    ("serving.kserve.io", "LocalModelCache"): (
        "a cache of files on nodes is not a model", "a replica caches its files; a WarmPool shortens starts",
    ),
    (MODEL.group, MODEL.kind): ("it is a Model already", "deploy it with `knodel deploy -f FILE`"),
}  # fmt: skip
"""Kinds that are not converted, each with the reason and what to do."""
_OTHER: Final = ("it is not a model of KServe or Knative", "apply it as before: `kubectl apply -f FILE`")
SERVED: Final = tuple(kind for _, kind in _CONVERTERS)


def convert(document: Mapping[str, Any], stores: Mapping[str, str] = MappingProxyType({})) -> Conversion:
    """Return what becomes of one object. Objects that cannot be converted have no Model and one field left out.

    `stores` has the URI of each store by its key in KServe's Secret `storage-config`.
    """
    version, kind = document.get("apiVersion"), document.get("kind")
    group = str(version).rpartition("/")[0]
    converter = _CONVERTERS.get((group, str(kind)))
    if converter is not None:
        return converter(ForeignObject(dict(document), stores))
    why, instead = _REASONS.get((group, str(kind)), _OTHER)
    about = f"{kind} ({version}): {why}" if isinstance(kind, str) else "kind is missing"
    return ForeignObject(dict(document)).refuse(NotConverted(about, instead))

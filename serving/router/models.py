"""The language models that the router knows, from the Models of the cluster."""

from __future__ import annotations

from typing import Final

from clusters.base.durations import parse_duration
from clusters.base.objects import Object
from clusters.net.language_models import LanguageModel, language_model, not_found
from clusters.runtime.informer import Informer

DEFAULT_TIMEOUT: Final = 300.0  # s; the default of a Model's `timeout`
MARGIN: Final = 5.0  # s added to the timeout, because errors of Knative and of the server have more detail


class KnownModels:
    """The language models among the objects of an informer. They stay known while the API server does not respond."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def listed(self, namespace: str) -> list[LanguageModel]:
        """Return the language models of a namespace."""
        found = (language_model(model) for model in self._informer if model["metadata"]["namespace"] == namespace)
        return [model for model in found if model is not None]

    def get(self, namespace: str, name: str) -> LanguageModel:
        """Return a language model. Raises ModelNotSelected (404)."""
        model = self._informer.get(name, namespace)
        found = None if model is None else language_model(model)
        if found is None:
            raise not_found(name)
        return found

    def timeout(self, namespace: str, name: str) -> float:
        """Return the time for a request in seconds: it may wait for its whole timeout, and be served for as long."""
        model = self._informer.get(name, namespace)
        return 2 * (DEFAULT_TIMEOUT if model is None else _timeout(model)) + MARGIN


def _timeout(model: Object) -> float:
    """Return the `timeout` of a Model. A text that admission would refuse counts as absent."""
    try:
        return parse_duration(str((model.get("spec") or {})["timeout"]))
    except (KeyError, ValueError):
        return DEFAULT_TIMEOUT

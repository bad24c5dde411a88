"""Admission of the embedded cluster: validate objects before they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusters.base.errors import FieldError
from clusters.base.objects import (
    CONFIG_MAP,
    EVENT_SOURCE,
    MODEL,
    MODEL_EVENT,
    NAMESPACE,
    REVISION,
    SECRET,
    WARM_POOL,
    Key,
    Kind,
    Object,
)
from clusters.embedded.store.admission import Validator
from clusters.embedded.store.secrets import validate_config_map, validate_secret
from clusters.embedded.store.store import Store
from eventing.objects.model_event import validate_model_event
from serving.types.code import allows_code
from serving.types.event_source import validate_event_source
from serving.types.faults import claim_of
from serving.types.references import make_validator
from serving.types.rollout import metrics_fault
from serving.types.settings.runtimes import runtime_fault
from serving.types.settings.settings import Settings
from serving.types.warm_pool import validate_warm_pool


def make_validators(store: Store, settings: Settings) -> Mapping[Kind, Validator]:
    """Return the validators by kind: those of our kinds, and of Secrets and ConfigMaps.

    Knative's kinds have none, because callers cannot write them (`WRITABLE` in `serving/platform/platform.py`).
    """
    return {
        MODEL: make_model_validator(store, settings),
        SECRET: validate_secret,
        CONFIG_MAP: validate_config_map,
        WARM_POOL: validate_warm_pool,
        EVENT_SOURCE: validate_event_source,
        MODEL_EVENT: validate_model_event,
    }


def make_model_validator(store: Store, settings: Settings) -> Validator:
    """Return the validator of Models: by themselves, against other objects, and against the settings."""
    whole = make_validator(
        store.of_kind(MODEL).values,
        store.of_kind(REVISION).values,
        lambda namespace: allows_code(store.get(NAMESPACE, Key("", namespace))),
    )

    def validate(old: Object | None, new: Object) -> Sequence[FieldError]:
        errors = whole(old, new)
        if errors or (old is not None and old.get("spec") == new.get("spec")):
            return errors
        return _unavailable(new["spec"], settings)

    return validate


def _unavailable(spec: Object, settings: Settings) -> list[FieldError]:
    """Return errors for features that the spec uses and this platform does not have."""
    errors = []
    adapters = (spec.get("llm") or {}).get("adapters") or ()
    uris = {"spec.storageUri": spec.get("storageUri") or ""}
    uris |= {f"spec.llm.adapters[{index}].uri": one["uri"] for index, one in enumerate(adapters)}
    for path, uri in uris.items():
        if claim_of(uri):
            why = "the embedded cluster has no PersistentVolumeClaims: use file:// and a path of this machine"
            errors.append(FieldError(path, why))
    if fault := runtime_fault(settings.runtimes, (spec.get("runtime") or {}).get("name") or ""):
        errors.append(FieldError("spec.runtime.name", fault))
    metrics = ((spec.get("rollout") or {}).get("judge") or {}).get("metrics") or ()
    if fault := metrics_fault(metrics, settings.rollout.prometheus_url):
        errors.append(FieldError("spec.rollout.judge.metrics", fault))
    return errors

"""Validate a WarmPool object and read it into a `WarmPool`, with every fault at once. Pure.

The fields of `template` are those of a Model that a claim cannot change, with the same syntax and defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autoscaler.warmpool.spec import AUTO, MAX, MAX_AGE, MIN
from clusters.base.errors import FieldError, Invalid
from clusters.base.names import dns_label_fault
from clusters.base.objects import WARM_POOL, Object, generation_of, name_of, namespace_of, uid_of
from serving.types import defaults, faults
from serving.types.model import Resources
from serving.types.reader import Fields, short_repr
from serving.types.validation import (
    LONGEST_TIMEOUT,
    MOST_CONCURRENCY,
    other_than,
    read_quantity,
    read_resources,
    read_runtime,
    read_secret,
)

MOST_MEMBERS = 1000
"""Members of one pool; more is certainly a typing error."""
LONGEST_SIZE = 8
"""Characters of a size: more digits exceed every limit, more letters are not `auto`."""
LEAST_AGE = 60.0
"""s: members that are replaced sooner are rarely ready."""
MOST_AGE = 2_592_000.0
"""s: thirty days; images and certificates change more often."""

OF_A_MODEL = (
    "storage", "modelFormat", "runtime", "resources", "containerConcurrency", "timeout", "serviceAccountName",
)  # fmt: skip
"""Fields of a Model that a claim cannot change: members and the Models that they serve must have equal values."""
LATER_TEMPLATE = {
    "template": "a pod template laid over ours",
    "protocol": "protocols, members speak http1",
}
"""Fields of a Model that later releases will have here: they are refused, never ignored."""


@dataclass(frozen=True, slots=True)
class PoolTemplate:
    """The fields that members have in common with Models that claim them; `timeout` in seconds, absent texts empty."""

    secret: str
    model_format: str
    runtime: str
    resources: Resources
    container_concurrency: int
    timeout: float
    service_account_name: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The resources that all members together may request, as quantities; empty: no limit."""

    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class WarmPoolSpec:
    """A valid spec with its defaults. `size` None is `auto`, limited by `least` and `most`; `max_age` is in seconds."""

    template: PoolTemplate
    size: int | None
    least: int
    most: int
    max_age: float
    budget: Budget


@dataclass(frozen=True, slots=True)
class WarmPool:
    """A valid WarmPool, read from `object`."""

    object: Object
    spec: WarmPoolSpec

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return name_of(self.object)

    @property
    def namespace(self) -> str:
        """`metadata.namespace`."""
        return namespace_of(self.object)

    @property
    def uid(self) -> str:
        """`metadata.uid`, empty before the WarmPool is stored."""
        return uid_of(self.object)

    @property
    def generation(self) -> int:
        """`metadata.generation`, 0 before the WarmPool is stored."""
        return generation_of(self.object)


def validate_warm_pool(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return every fault of `new`.

    Without a change to the fields that callers write there are none, so that the status can always be written.
    """
    if old is not None and _written(old) == _written(new):
        return ()
    return _read(new)[1]


def read_warm_pool(obj: Object) -> WarmPool:
    """Return the WarmPool with all defaults. Raises Invalid with every fault."""
    pool, errors = _read(obj)
    if errors:
        raise Invalid(f"WarmPool {short_repr((obj.get('metadata') or {}).get('name', ''))[1:-1]}", errors)
    return pool


def _written(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _read(obj: Object) -> tuple[WarmPool, list[FieldError]]:
    errors: list[FieldError] = []
    top = Fields(obj, "", errors)
    for name, expected in (("apiVersion", WARM_POOL.api_version), ("kind", WARM_POOL.kind)):
        top.text(name, partial(other_than, expected), required=True)
    metadata = top.child("metadata")
    metadata.text("name", faults.pool_name_fault, required=True)
    metadata.text("namespace", dns_label_fault)
    top.raw("status")
    spec = top.child("spec")
    if not top.has("spec"):
        top.refuse("spec", "is required: a mapping, {} for every default")
    top.close()
    return WarmPool(obj, _read_spec(spec)), errors


def _read_spec(fields: Fields) -> WarmPoolSpec:
    least = fields.integer("min", MIN, 0, MOST_MEMBERS)
    most = fields.integer("max", max(MAX, least), 1, MOST_MEMBERS)
    if least > most:
        fields.refuse("min", f"must be at most max ({most}), not {least}")
    budget = fields.child("budget")
    spec = WarmPoolSpec(
        template=_read_template(fields.child("template")),
        size=_read_size(fields),
        least=least,
        most=most,
        max_age=fields.seconds("maxAge", MAX_AGE, LEAST_AGE, MOST_AGE),
        budget=Budget(cpu=read_quantity(budget, "cpu", ""), memory=read_quantity(budget, "memory", "")),
    )
    budget.close()
    fields.close()
    return spec


def _read_size(fields: Fields) -> int | None:
    value = fields.raw("size")
    if value is None or value == AUTO:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_MEMBERS:
        fields.refuse("size", f"must be {AUTO} or a whole number from 0 to {MOST_MEMBERS}, not {short_repr(value)}")
        return None
    return value


def _read_template(fields: Fields) -> PoolTemplate:
    template = PoolTemplate(
        secret=read_secret(fields),
        model_format=fields.text("modelFormat", faults.format_fault),
        runtime=read_runtime(fields),
        resources=read_resources(fields.child("resources"), Resources(defaults.CPU, defaults.MEMORY)),
        container_concurrency=fields.integer(
            "containerConcurrency", defaults.CONTAINER_CONCURRENCY, 0, MOST_CONCURRENCY
        ),
        timeout=fields.seconds("timeout", defaults.TIMEOUT, 1.0, LONGEST_TIMEOUT, whole=True),
        service_account_name=fields.text("serviceAccountName", faults.subdomain_fault),
    )
    fields.close(LATER_TEMPLATE)
    return template

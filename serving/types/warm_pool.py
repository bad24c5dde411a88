"""The table of a WarmPool's fields (see `tables`), and its typed value.

The fields of `template` are those of a Model that a claim cannot change, with the same syntax and defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from autoscaler.warmpool.spec import AUTO, MAX, MAX_AGE, MIN
from clusters.base.objects import WARM_POOL, Object
from serving.types import formats
from serving.types.fields import Duration, Field, Integer, Quantity
from serving.types.model import CheckedObject, ServerSpec
from serving.types.reader import Reader, short_repr
from serving.types.scaling import EVEN_SHARE, GpuShare
from serving.types.schema import INT_OR_STRING, Schema, plain, rule, ruled
from serving.types.tables import INLINE, Later, Nested, table_of
from serving.types.validation import KindTable

MOST_MEMBERS: Final = 1000
"""Members of one pool; more is certainly a typing error."""
LONGEST_SIZE: Final = 8
"""Characters of a size: more digits exceed every limit, more letters are not `auto`."""
OF_A_MODEL: Final = tuple(table_of(ServerSpec))
"""Fields of a Model that a claim cannot change: members and the Models that they serve must have equal values."""


@dataclass(frozen=True)
class Size(Field):
    """A number of members or `auto`, which is read as None."""

    def read(self, value: Any, at: Reader, name: str) -> int | None:
        """Return the number."""
        if value == AUTO:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_MEMBERS:
            at.refuse(name, f"must be {self.expected()}, not {short_repr(value)}")
            return None
        return value

    def schema(self) -> Schema:
        """Return the structural OpenAPI schema."""
        good = f"type(self) == string ? self == '{AUTO}' : self >= 0 && self <= {MOST_MEMBERS}"
        return ruled({INT_OR_STRING: True, "maxLength": LONGEST_SIZE}, [rule(good, f"must be {self.expected()}")])

    def expected(self) -> str:
        """Return what a value must be."""
        return f"{AUTO} or a whole number from 0 to {MOST_MEMBERS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTemplate(ServerSpec):
    """Fields that members share with the Models that claim them. Defaults are those of a Model."""

    LATER: ClassVar = {
        "template": Later("overrides of the Pod template"),
        "protocol": Later("other protocols than http1", plain("string")),
    }


@dataclass(frozen=True, slots=True)
class Budget:
    """Maximum resources of all members together. Absent resources are not limited."""

    cpu: Annotated[str, Quantity("CPU cores.")] = ""
    memory: Annotated[str, Quantity("Memory in bytes.")] = ""


@dataclass(frozen=True, slots=True)
class WarmPoolSpec:
    """Desired state of the WarmPool.

    `size` None is `auto`, limited by `least` and `most`; `max_age` is in seconds.
    """

    template: Annotated[PoolTemplate, Nested("", PoolTemplate)] = PoolTemplate()
    size: Annotated[
        int | None, Size(f"Number of ready members, or {AUTO}: derived from arrivals and start times. Default: {AUTO}.")
    ] = None
    least: Annotated[int, Integer(f"Minimum number of members if size is {AUTO}.", 0, MOST_MEMBERS, name="min")] = MIN
    most: Annotated[
        int,
        Integer(
            f"Maximum number of members if size is {AUTO}.",
            1,
            MOST_MEMBERS,
            name="max",
            note=", or min if larger",
        ),
    ] = MAX
    max_age: Annotated[  # members that are replaced sooner are rarely ready; images and certificates change more often
        float, Duration("Age at which a member is replaced.", 60.0, 2_592_000.0)
    ] = MAX_AGE
    budget: Annotated[Budget, Nested("", Budget)] = Budget()
    gpu_share: Annotated[GpuShare, INLINE] = EVEN_SHARE

    RULES: ClassVar = (rule("!has(self.min) || !has(self.max) || self.min <= self.max", "must be at most max", ".min"),)

    @staticmethod
    def complete(values: dict[str, Any]) -> None:
        """Raise the default maximum to the minimum."""
        values.setdefault("most", max(MAX, values.get("least", MIN)))

    def faults(self, _: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rule in Python."""
        if self.least > self.most:
            yield "min", f"must be at most max ({self.most}), not {self.least}"


@dataclass(frozen=True, slots=True)
class WarmPool(CheckedObject):
    """A valid WarmPool, read from `object`."""

    spec: WarmPoolSpec


WARM_POOL_TABLE: Final = KindTable(
    WARM_POOL,
    "Servers that wait for a model. A starting replica takes one of them instead of a new Pod.",
    formats.POOL_NAME,
    WarmPoolSpec,
)
validate_warm_pool = WARM_POOL_TABLE.validate


def read_warm_pool(obj: Object) -> WarmPool:
    """Return the WarmPool with all defaults. Raises Invalid with every fault."""
    spec, _, errors = WARM_POOL_TABLE.read(obj)
    WARM_POOL_TABLE.require_valid(obj, errors)
    return WarmPool(obj, spec)

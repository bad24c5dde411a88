"""Shared by the verbs that send requests to a model: checked names, and the error for an absent model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clusters.base.errors import NotFound
from clusters.base.names import dns_label_fault
from serving.cli.context import Session
from serving.client.errors import DoesNotExist, UsageError
from serving.client.inference.failures import not_found


def check_names(name: str, tag: str) -> None:
    """Raise UsageError unless the name of a model and the tag of a version, empty for none, are valid."""
    for option, value in (("NAME", name), ("--tag", tag)):
        if value and (fault := dns_label_fault(value)):
            raise UsageError(f"{option}: {fault}")


@contextmanager
def absence_explained(session: Session, name: str) -> Iterator[None]:
    """Raise the error for a model that does not exist or is not ready, in place of a NotFound in the block."""
    try:
        yield
    except DoesNotExist:
        raise
    except NotFound as error:
        raise session.driver.run(not_found(session.ref, name, session.namespace, str(error))) from error

"""The Secrets with the tokens of groups, one for each Model with workers. They are created, and never read."""

from __future__ import annotations

import base64
import secrets
from contextlib import suppress
from typing import Final

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, Forbidden, Invalid
from clusters.base.objects import MODEL, SECRET, Key, Object, name_of, owner_reference
from serving.engines.base.group import TOKEN_FILE
from serving.makers import names
from serving.reconciler.apply import FIELD_MANAGER, WriteRefusal
from serving.types.annotations import LABEL_MODEL
from serving.types.model import Model

TOKEN_BYTES: Final = 32  # as many as SHA-256 uses


class GroupTokens:
    """Creates the token of a Model before its first leader starts, which mounts it.

    A leader's Pod cannot have a Secret of its own: Knative makes all replicas of a Revision from one template.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._created: dict[Key, str] = {}  # uids of Models

    async def ensure(self, model: Model, *, complete: bool) -> WriteRefusal | None:
        """Create the Secret of a Model with workers, unless it exists; return why the cluster refuses it.

        `complete` is whether all groups of the Model have their workers, so that the Secret must exist. Raises the
        cluster's other errors.
        """
        key = Key(model.namespace, model.name)
        if model.spec.workers is None or (complete and self._created.get(key) == model.uid):
            return None
        token = make_token(model, secrets.token_bytes(TOKEN_BYTES))
        try:
            with suppress(AlreadyExists):
                await self._cluster.create(SECRET, token, manager=FIELD_MANAGER)
        except (Invalid, Forbidden) as error:
            return WriteRefusal(error.reason, f"Secret {name_of(token)}: {error}")
        self._created[key] = model.uid
        return None

    def forget(self, key: Key) -> None:
        """Forget a deleted Model."""
        self._created.pop(key, None)


def make_token(model: Model, token: bytes) -> Object:
    """Return the Secret of a Model. Its text is hex, since it becomes an environment variable."""
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": names.group_token(model),
            "namespace": model.namespace,
            "labels": {LABEL_MODEL: model.name},
            "ownerReferences": [owner_reference(MODEL, model.object)],
        },
        "type": "Opaque",
        "data": {TOKEN_FILE: base64.b64encode(token.hex().encode()).decode()},
    }

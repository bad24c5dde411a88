"""The Secret `knodel-pool-key`, from which the autoscaler derives the tokens of warm pools.

It is created once and never overwritten, because a new key would replace every member.
"""

from __future__ import annotations

import base64
import secrets

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import SECRET, Object
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install.bundle import LABEL, PART_OF
from serving.reconciler.apply import FIELD_MANAGER

NAME = "knodel-pool-key"
KEY = "key"
LENGTH = 32
"""Random bytes of the key: the output size of HMAC-SHA256 (RFC 2104, section 3)."""


async def make_pool_key(cluster: Cluster, dry_run: bool = False) -> bool:
    """Create the Secret if it is missing. Return whether it was, or with `dry_run` would be, created."""
    try:
        await cluster.create(SECRET, _secret(), manager=FIELD_MANAGER, dry_run=dry_run)
    except AlreadyExists:
        return False
    except NotFound:
        if not dry_run:  # in a dry run the namespace may not exist
            raise
    return True


def _secret() -> Object:
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE, "labels": {LABEL: PART_OF}},
        "type": "Opaque",
        "data": {KEY: base64.b64encode(secrets.token_bytes(LENGTH)).decode()},
    }

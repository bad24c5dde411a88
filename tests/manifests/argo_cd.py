"""The settings of Argo CD for our kinds: a script that judges their health. Pure."""

from __future__ import annotations

from clusters.base.objects import EVENT_SOURCE, MODEL, WARM_POOL, Object

KINDS = (MODEL, WARM_POOL, EVENT_SOURCE)
"""Kinds that users keep in a repository. ModelEvents are made by the webhook."""


def make_argo_cd_settings(script: str) -> Object:
    """Return the patch for the ConfigMap `argocd-cm`, with the script for each kind."""
    keys = {f"resource.customizations.health.{kind.group}_{kind.kind}": script for kind in KINDS}
    metadata = {"name": "argocd-cm", "labels": {"app.kubernetes.io/part-of": "argocd"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": keys}

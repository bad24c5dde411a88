"""Test the health of our kinds as Argo CD judges it, by its own version of Lua."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from lupa import lua51

from clusters.base.objects import Object
from tests.manifests.argo_cd import make_argo_cd_settings
from tests.manifests.generate import ARGO_CD, generated

SCRIPT = (ARGO_CD / "health.lua").read_text()


def health(obj: Object) -> tuple[str, str]:
    """Return status and message of an object. Argo CD gives it to the script as the global `obj`."""
    lua = lua51.LuaRuntime(register_eval=False, attribute_filter=None)
    lua.globals()["obj"] = lua.table_from(obj, recursive=True)
    for library in ("os", "io", "require", "package", "debug"):  # Argo CD opens none of these
        lua.globals()[library] = None
    found: Any = lua.execute(SCRIPT)
    return str(found["status"]), str(found["message"])


def made(ready: str = "", reason: str = "", message: str = "", **status: Any) -> Object:
    """Return an object of generation 2 with the condition Ready."""
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
    other = {"type": "ObjectsApplied", "status": "True"}
    conditions = [other, condition] if ready else [other]
    return {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions, **status}}


def rolling(phase: str, newest: str = "iris-00002", **rollout: Any) -> Object:
    """Return a ready Model with a rollout of iris-00002."""
    state = {"phase": phase, "candidate": "iris-00002", "reasons": ["because"], **rollout}
    return made("True", latestCreatedRevision=newest, rollout=state)


@pytest.mark.parametrize(
    ("obj", "status", "message"),
    [
        ({"metadata": {"generation": 1}}, "Progressing", "not been observed"),
        (made("True", observedGeneration=1), "Progressing", "not been observed"),
        (made(), "Progressing", "no condition Ready"),
        (made("True"), "Healthy", ""),
        (made("True", "Tokens", "accepts tokens"), "Healthy", "accepts tokens"),
        (made("Unknown", "Deploying", "1 of 2"), "Progressing", "1 of 2"),
        (made("Unknown", "SecretForbidden", "may not read"), "Healthy", "may not read"),
        (made("False", "LoadFailed"), "Degraded", "LoadFailed"),
        (made("False", "Recovering", "iris-00001 restarts"), "Progressing", "restarts"),
        (rolling("Progressing"), "Progressing", "because"),
        (rolling("Paused"), "Suspended", "because"),
        (rolling("Paused", reasons=[]), "Suspended", "Paused"),
        (rolling("Promoted"), "Healthy", ""),
        (rolling("RolledBack"), "Degraded", "because"),
        (rolling("Failed"), "Degraded", "because"),
        (rolling("RolledBack", newest="iris-00003"), "Healthy", ""),
    ],
)
def test_the_health_of_an_object(obj: Object, status: str, message: str) -> None:
    found = health(obj)

    assert found[0] == status
    assert message in found[1]


def test_the_patch_of_argo_cd_has_the_script_for_each_kind() -> None:
    text = generated()[ARGO_CD / "argocd-cm.yaml"]

    assert yaml.safe_load(text) == make_argo_cd_settings(SCRIPT)
    assert set(yaml.safe_load(text)["data"]) == {
        f"resource.customizations.health.knodel.dev_{kind}" for kind in ("Model", "WarmPool", "EventSource")
    }

"""The manifest of the kubectl plugin for krew (krew.sigs.k8s.io/docs/developer-guide/plugin-manifest). Pure."""

from __future__ import annotations

from typing import Any, Final

PROGRAM: Final = "kubectl-knodel"
SYSTEMS: Final = ("darwin", "linux")
_DESCRIPTION: Final = """\
Deploys machine-learning models on clusters with Knative and Knodel: splits traffic between versions, follows judged
rollouts, and explains the number of replicas. It acts on the current context of kubectl.
"""
_CAVEATS: Final = """\
The plugin needs Python 3.11 or newer as python3 on the PATH. `kubectl knodel install` and `events` need more packages:
pip install 'knodel[kubernetes]', which also has this plugin.
"""


def archive_name(version: str) -> str:
    """Return the name of the plugin's archive."""
    return f"{PROGRAM}-{version}.tar.gz"


def make_krew_manifest(version: str, download: str, sha256: str) -> dict[str, Any]:
    """Return the manifest. `download` is the address of the folder of the archive, without a slash at its end."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "knodel"},
        "spec": {
            "version": f"v{version}",
            "homepage": "https://knodel.dev",
            "shortDescription": "Deploy and roll out machine-learning models",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": list(SYSTEMS)}]},
                    "uri": f"{download}/{archive_name(version)}",
                    "sha256": sha256,
                    "files": [{"from": "*", "to": "."}],
                    "bin": PROGRAM,
                }
            ],
        },
    }

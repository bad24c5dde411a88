"""What a Prometheus on the same machine needs: its configuration, and the addresses of the model servers.

A platform writes `prometheus.yml` into its state folder. Prometheus reads the token file again for each scrape, so it
goes on after a restart of the platform.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.base.objects import LABEL_REVISION, Object, labels_of, name_of, namespace_of
from clusters.net.endpoints import endpoint_of, is_ready
from serving.control_api.app import TARGETS_PATH
from serving.types.annotations import LABEL_MODEL

INTERVAL: Final = "5s"


def scrape_targets(pods: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the management ports of ready replicas, as Prometheus' HTTP service discovery expects them.

    Format: https://prometheus.io/docs/prometheus/latest/http_sd/. `instance` is the name of the Pod, since its port
    changes with each start.
    """
    targets = []
    for pod in pods:
        labels, endpoint = labels_of(pod), endpoint_of(pod)
        if endpoint is None or not is_ready(pod) or LABEL_REVISION not in labels:
            continue
        about = {"namespace": namespace_of(pod), "model": labels.get(LABEL_MODEL, ""), "instance": name_of(pod)}
        targets.append({"targets": [f"{endpoint.host}:{endpoint.management_port}"], "labels": about})
    return targets


def prometheus_config(control: str, token: Path, authority: Path) -> str:
    """Return a complete configuration of Prometheus for the platform whose TLS address is `control` (`host:port`).

    `token` and `authority` are the files of the API's token and certificate authority.

    Example:
        prometheus --config.file ~/.local/state/knodel/prometheus.yml
    """

    def access() -> dict[str, Any]:
        # The discovery of Prometheus before 2.44 has no default type.
        authorization = {"type": "Bearer", "credentials_file": str(token)}
        return {"authorization": authorization, "tls_config": {"ca_file": str(authority)}}

    discovery = {"url": f"https://{control}{TARGETS_PATH}", "refresh_interval": INTERVAL, **access()}
    platform = {"targets": [control], "labels": {"instance": "platform"}}
    config = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "scrape_configs": [
            {"job_name": "knodel", "scheme": "https", **access(), "static_configs": [platform]},
            {"job_name": "knodel-models", "http_sd_configs": [discovery]},
        ],
    }
    return "# Written by each start of the platform.\n" + yaml.safe_dump(config, sort_keys=False)

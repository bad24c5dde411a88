"""`knodel install`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from clusters.base.objects import Object
from serving.cli.base.output import ProgressLine
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.client.errors import TimedOut, UsageError
from serving.install.bundle import OVERLAYS


@verb(
    "install", place="cluster", namespaced=False,
    examples=[
        ("Install, and set the Knative flags that Knodel needs",
         "knodel install --kube-context NAME --configure-knative"),
        ("Show what an upgrade would change", "knodel install --kube-context NAME --dry-run"),
    ],
)  # fmt: skip
@click.option("--overlay", type=click.Choice(OVERLAYS), help=f"Built-in manifests [{OVERLAYS[0]}].")
@click.option(
    "--manifests", metavar="DIR", type=click.Path(file_okay=False), help="Folder with your own YAML manifests."
)
@click.option(
    "--dashboard", is_flag=True, help="Install the dashboard, too. An upgrade without it removes the dashboard."
)
@click.option("--configure-knative", is_flag=True, help="Set the Knative flags that Knodel needs.")
@click.option("--dry-run", is_flag=True, help="Print the changes; make none.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all parts run.")
@timeout_option("180s")
def command(
    session: Session, overlay: str | None, manifests: str | None, dashboard: bool, timeout: str, **how: Any
) -> None:
    """Install Knodel on a cluster that has Knative Serving, or upgrade it to this release."""
    objects = _objects(overlay, manifests, dashboard)
    seconds = parse_timeout(timeout)
    asyncio.run(_install(session, objects, seconds, **how))


def _objects(overlay: str | None, manifests: str | None, dashboard: bool) -> Sequence[Object]:
    from serving.install.bundle import BadManifests, load_folder, load_overlay
    from serving.install.kinds import UnknownKind

    if overlay and manifests:
        raise UsageError("--overlay selects built-in manifests, --manifests your own: give only one of them")
    if dashboard and manifests:
        raise UsageError(
            "--dashboard adds to built-in manifests: add components/dashboard to the sources of --manifests"
        )
    try:
        return load_folder(Path(manifests)) if manifests else load_overlay(overlay or OVERLAYS[0], dashboard=dashboard)
    except (BadManifests, UnknownKind) as error:
        raise UsageError(str(error)) from error


async def _install(
    session: Session,
    objects: Sequence[Object],
    seconds: float,
    *,
    configure_knative: bool,
    dry_run: bool,
    wait: bool,
) -> None:
    from clusters.base.clock import SystemClock
    from clusters.kubernetes import KubernetesCluster
    from serving.cli.verbs.platform.installing import flag_lines, ingress_lines, print_changes
    from serving.install.installer import Installer
    from serving.install.knative import flags_off, require_knative, switch_on
    from serving.install.waiting import NotDone, WaitDeadline
    from serving.makers.knative_flags import FLAGS, GPU_FLAGS

    progress = ProgressLine()
    deadline = WaitDeadline(SystemClock(), seconds, progress.show)
    try:
        async with KubernetesCluster.connect(session.kube.name if session.kube else None) as cluster:
            await require_knative(cluster)
            off = await flags_off(cluster, (*FLAGS, *GPU_FLAGS) if configure_knative else FLAGS)
            done = await switch_on(cluster, off, dry_run=dry_run) if configure_knative else []
            installer = Installer(cluster, progress.show, dry_run)
            changes = await installer.apply(objects, deadline)
            if wait and not dry_run:
                await installer.wait(objects, deadline)
    except NotDone as error:
        again = f"`knodel install --kube-context {session.kube.name if session.kube else 'NAME'}`"
        raise TimedOut(f"{error}; nothing was removed: run {again} again") from error
    finally:
        progress.clear()
    notes = [
        *flag_lines(off, done, configure_knative, dry_run),
        *installer.notes,
        *ingress_lines(installer.settings),
    ]
    print_changes(session.output, changes, notes, dry_run)

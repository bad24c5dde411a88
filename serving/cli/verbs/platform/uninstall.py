"""`knodel uninstall`."""

from __future__ import annotations

import asyncio

import click

from serving.cli.base.output import ProgressLine
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.client.errors import TimedOut


@verb(
    "uninstall", place="cluster", namespaced=False,
    examples=[("Show what would be removed", "knodel uninstall --kube-context NAME --dry-run")],
)  # fmt: skip
@click.option("--delete-models", is_flag=True, help="Delete all models and warm pools of the cluster first.")
@click.option("--dry-run", is_flag=True, help="Print the changes; make none.")
@timeout_option("180s")
def command(session: Session, delete_models: bool, dry_run: bool, timeout: str) -> None:
    """Remove Knodel from a cluster. Knative and its flags are not changed."""
    asyncio.run(_uninstall(session, delete_models, dry_run, parse_timeout(timeout)))


async def _uninstall(session: Session, may_delete: bool, dry_run: bool, seconds: float) -> None:
    from clusters.base.clock import SystemClock
    from clusters.kubernetes import KubernetesCluster
    from serving.cli.verbs.platform.installing import print_changes
    from serving.install.installer import ManifestChange
    from serving.install.uninstaller import delete_owned, owned_by_people, remove_all, require_none
    from serving.install.waiting import NotDone, WaitDeadline

    progress = ProgressLine()
    deadline = WaitDeadline(SystemClock(), seconds, progress.show)
    changes: list[ManifestChange] = []
    try:
        async with KubernetesCluster.connect(session.kube.name if session.kube else None) as cluster:
            owned = await owned_by_people(cluster)
            if not may_delete:
                require_none(owned)
            elif dry_run:
                changes += [one.deleted for one in owned]
            elif owned:
                changes += await delete_owned(cluster, owned, deadline)
            changes += await remove_all(cluster, deadline, dry_run)
    except NotDone as error:
        again = f"`knodel uninstall --kube-context {session.kube.name if session.kube else 'NAME'}`"
        raise TimedOut(f"{error}: run {again} again") from error
    finally:
        progress.clear()
    notes = () if changes else ("Knodel is not installed on this cluster",)
    print_changes(session.output, changes, notes, dry_run)

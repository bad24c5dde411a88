"""Output of `install` and `uninstall`: the changed objects, and notes about Knative."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serving.cli.base.output import Output
from serving.install.installer import ManifestChange
from serving.makers.knative_flags import Flag
from serving.types.settings.settings import Settings

UNCHANGED = "unchanged"


def print_changes(output: Output, changes: Sequence[ManifestChange], notes: Iterable[str], dry_run: bool) -> None:
    """Print a line for each changed object and for each note; with `-o json` or yaml, all objects."""
    if output.structured:
        output.value(
            {
                "dryRun": dry_run,
                "objects": [
                    {"kind": one.kind.kind, "namespace": one.key.namespace, "name": one.key.name, "done": one.done}
                    for one in changes
                ],
                "notes": list(notes),
            }
        )
        return
    suffix = " (dry run)" if dry_run else ""
    for change in changes:
        if change.done != UNCHANGED:
            output.text(f"{change}{suffix}")
    same = sum(change.done == UNCHANGED for change in changes)
    if same:
        output.text(f"{same} objects unchanged{suffix}")
    for note in notes:
        output.text(note)


def flag_lines(off: Sequence[Flag], done: Sequence[Flag], configure: bool, dry_run: bool) -> list[str]:
    """Describe the flags that were off: those that were set or would be set (`done`), and how to set the others."""
    lines = [_flag_line(flag, flag in done, dry_run) for flag in off]
    return (
        [*lines, "`knodel install --kube-context NAME --configure-knative` sets them"]
        if off and not configure
        else lines
    )


def ingress_lines(settings: Settings | None) -> list[str]:
    """Describe the addresses of models."""
    if settings is None:
        return []
    gateway = settings.gateway
    return [f"ingress http://{gateway.address}:{gateway.port}, models at NAME.NAMESPACE.{gateway.domain}"]


def _flag_line(flag: Flag, done: bool, dry_run: bool) -> str:
    place = f"{flag.key} of ConfigMap {flag.namespace}/{flag.configmap}"
    if done:
        restart = f", Deployment {flag.restarts} {'would be ' if dry_run else ''}restarted" if flag.restarts else ""
        return f"{place} {'would be' if dry_run else 'was'} set to {flag.wanted}{restart}: {flag.feature}"
    return f"{place} is off, so there are no {flag.feature}: {flag.remedy}"

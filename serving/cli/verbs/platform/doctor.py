"""`knodel doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from serving.cli.base.errors import FAILED, UsageError
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.doctor.findings import Finding


@verb(
    "doctor",
    examples=[
        ("Check this machine and its platform", "knodel doctor"),
        ("Check a cluster", "knodel doctor --kube-context NAME"),
    ],
)
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML) of the platform.")
@click.option("--full", is_flag=True, help="Read all kept copies of model files, however large.")
def command(session: Session, config: str | None, full: bool) -> int:
    """Find problems on this machine or in a cluster, and their remedies. The exit code is 1 when there are problems."""
    findings = list(_examine(session, config, full))
    if session.output.structured:
        session.output.value([asdict(finding) for finding in findings])
    else:
        _print(session.output, findings)
    return 0 if all(finding.ok for finding in findings) else FAILED


def _print(output: Output, findings: list[Finding]) -> None:
    """Print the findings. A remedy has a line of its own on a terminal: next to its message there is no room for it."""
    if output.columns is None:
        rows = [[one.check, one.state, one.message, one.remedy] for one in findings]
        output.table(["check", "state", "what", "remedy"], rows)
        return
    lines: list[list[str]] = []
    for one in findings:
        lines.append([one.check, one.state, one.message])
        if one.remedy:
            lines.append(["", "", f"remedy: {one.remedy}"])
    output.table(["check", "state", "what"], lines, wrapped="what")


def _examine(session: Session, config: str | None, full: bool) -> Iterator[Finding]:
    """What looks at the one, or at the other: each imports parts that the other does not need."""
    if session.kube is None:
        from serving.cli.doctor.examine import examine

        return examine(session.state, Path(config) if config else None, session.client, full=full)
    if config:
        raise UsageError("--config is of a platform on this machine; the settings of a cluster are its knodel-config")
    if full:
        raise UsageError("--full is of a platform on this machine: a cluster keeps no copies of model files")
    from serving.cli.doctor.examine_cluster import examine_cluster

    return examine_cluster(session, session.kube.name)

"""`knodel doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from serving.cli.base.output import PROGRESS_DELAY, Output, ProgressLine
from serving.cli.context import Session, verb
from serving.cli.doctor.findings import Finding
from serving.client.errors import FAILED, UsageError


@verb(
    "doctor",
    examples=[
        ("Check this machine and its platform", "knodel doctor"),
        ("Check a cluster, with the Models of all namespaces", "knodel doctor -A --kube-context NAME"),
    ],
)
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML) of the platform.")
@click.option("-A", "--all-namespaces", is_flag=True, help="On a cluster, check Models of all namespaces.")
@click.option("--full", is_flag=True, help="Read all stored copies of model files, of any size.")
def command(session: Session, config: str | None, full: bool, all_namespaces: bool) -> int:
    """Find problems on this machine or in a cluster, and their remedies. The exit code is 1 if there are problems."""
    findings, progress = [], ProgressLine(delay=PROGRESS_DELAY)
    try:
        progress.show("checking")
        for finding in _examine(session, config, full, all_namespaces):
            findings.append(finding)
            progress.show(f"checked {finding.check}")
    finally:
        progress.clear()
    if session.output.structured:
        session.output.value([asdict(finding) for finding in findings])
    else:
        _print(session.output, findings)
    return 0 if all(finding.ok for finding in findings) else FAILED


def _print(output: Output, findings: list[Finding]) -> None:
    """Print the findings; on a terminal, a remedy has its own line, as a fourth column would be too narrow."""
    if output.columns is None:
        rows = [[one.check, one.state, one.message, one.remedy] for one in findings]
        output.table(["check", "state", "message", "remedy"], rows)
        return
    lines: list[list[str]] = []
    for one in findings:
        lines.append([one.check, one.state, one.message])
        if one.remedy:
            lines.append(["", "", f"remedy: {one.remedy}"])
    output.table(["check", "state", "message"], lines, wrapped="message")


def _examine(session: Session, config: str | None, full: bool, all_namespaces: bool) -> Iterator[Finding]:
    """Run the checks of the machine or of the cluster; each imports modules that the other does not need."""
    if session.kube is None:
        from serving.cli.doctor.examine import examine

        return examine(session.state, Path(config) if config else None, session.client, full=full)
    if config:
        raise UsageError(
            "--config applies to a platform on this machine: a cluster has its settings in ConfigMap knodel-config"
        )
    if full:
        raise UsageError("--full applies to a platform on this machine: omit it for a cluster")
    from serving.cli.doctor.examine_cluster import examine_cluster

    return examine_cluster(session, session.kube.name, None if all_namespaces else session.namespace)

"""`knodel doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from serving.cli.context import Session, verb
from serving.cli.errors import FAILED
from serving.cli.examine import examine


@verb("doctor")
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML) of the platform.")
def command(session: Session, config: str | None) -> int:
    """Find what is wrong on this machine, and what helps; exit code 1 when something is. Changes nothing."""
    findings = list(examine(session.state, Path(config) if config else None))
    if session.output.structured:
        session.output.value([asdict(finding) for finding in findings])
    else:
        session.output.table(
            ["check", "state", "what", "remedy"],
            [[one.check, "ok" if one.ok else "PROBLEM", one.message, one.remedy] for one in findings],
        )
    return 0 if all(finding.ok for finding in findings) else FAILED

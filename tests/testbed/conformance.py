"""Knative's own tests on the testbed, with an autoscaler class: what passes, what does not, and why not.

`api` and `runtime` are upstream's conformance suite, compiled out of the Go module as it is; `scaling` is a small test
of ours (modules/conformance) that calls the helpers of upstream's end-to-end tests, which name Knative's class. The
class comes to the former by Knative's own default, the key `pod-autoscaler-class`, and to the latter by a flag as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.testbed import (
    builds,
    commands,
    conformance_ground,
    conformance_images,
    conformance_results,
    containers,
    images,
)
from tests.testbed.conformance_results import Expectation, Result
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.locks import alone
from tests.testbed.paths import Paths
from tests.testbed.progress import Report
from tests.testbed.versions import CONFORMANCE

KPA: Final = "kpa.autoscaling.knative.dev"
OURS: Final = "gpu.autoscaling.knodel.dev"
EXPECTED: Final = Path(__file__).with_name("conformance.toml")
PARALLEL: Final = 4  # tests at once: they mostly wait, for Pods of which two cores start about one a second
_SPOOF_INTERVAL: Final = "200ms"  # between two requests of a test that waits for an answer; upstream's is 1 s
_SPOOF_TIMEOUT: Final = "2m"  # upstream's 5 min is for clusters that pull images
_SLACK: Final = 60.0  # s that a suite's process may take beyond the limit that it keeps itself


@dataclass(frozen=True, slots=True)
class Suite:
    """One test program: its binary, its time limit (s), and whether it takes the class as a flag."""

    binary: str
    limit: int
    takes_class: bool = False


SUITES: Final = {
    "api": Suite("knative-conformance-api", 1200),
    "runtime": Suite("knative-conformance-runtime", 600),
    "scaling": Suite("knative-scaling", 900, takes_class=True),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run: the class, the suites, the tests (a regular expression, as of `go test -run`), how many at once."""

    autoscaler_class: str = OURS
    suites: Sequence[str] = tuple(SUITES)
    run: str = "."
    parallel: int = PARALLEL


def conformance(asked: Asked, paths: Paths, kubectl: Kubectl, report: Report) -> list[Result]:
    """Build what is missing and run; the results of all suites. The cluster is afterwards as it was before.

    Raises TestbedError without a testbed, or when a suite cannot be run at all.
    """
    if not paths.kubeconfig.exists():
        raise TestbedError(f"no testbed at {paths.state}: `python -m tests.testbed up` brings one up")
    with alone(paths.locks / "conformance", report):
        prepare(paths, report)
        containers.import_archives(paths, [conformance_images.ensure(paths)])
        with conformance_ground.prepared(kubectl, asked.autoscaler_class):
            return [result for name in asked.suites for result in _run(name, asked, paths, report)]


def prepare(paths: Paths, report: Report) -> None:
    """Build the programs and the images that are not in the cache yet."""
    builds.ensure([CONFORMANCE], paths, report)
    conformance_images.ensure(paths)


def is_prepared(paths: Paths) -> bool:
    """Whether `prepare` has nothing to build."""
    return (paths.builds / f"{CONFORMANCE.name}-{builds.key(CONFORMANCE)}").exists()


def expected() -> list[Expectation]:
    """The table of tests that do not simply pass. Raises TestbedError when it is broken."""
    return conformance_results.expectations(EXPECTED.read_text())


def conclude(asked: Asked, results: Sequence[Result]) -> tuple[str, list[str]]:
    """The table of the results, and what in it is not as expected (nothing: well)."""
    table = expected()
    shown = conformance_results.table(results, table, asked.autoscaler_class)
    wrong = conformance_results.deviations(results, table, asked.autoscaler_class)
    return shown, wrong if results else ["no test has run: is there one that the expression of --run names?"]


def _run(name: str, asked: Asked, paths: Paths, report: Report) -> list[Result]:
    suite = SUITES[name]
    report(f"{name}: run with {asked.autoscaler_class}")
    said_at = paths.logs / f"conformance-{name}.log"
    code = _execute(suite, asked, paths, said_at)
    results = conformance_results.read(name, said_at.read_text(errors="replace").splitlines())
    if code != 0 and all(result.outcome == conformance_results.PASS for result in results):
        raise TestbedError(f"{suite.binary} ended with {code} though no test failed: see {said_at}")
    said = ", ".join(f"{number} {outcome}" for outcome, number in conformance_results.counts(results).items())
    report(f"{name}: {said or 'no test'}; all that it said is in {said_at}")
    return results


def _execute(suite: Suite, asked: Asked, paths: Paths, log: Path) -> int:
    """Run the suite; `log` gets what `go tool test2json` says about it. The exit code; 1 when a test failed."""
    program = str(paths.binaries / suite.binary)
    command = ["go", "tool", "test2json", "-t", program, "-test.v=test2json", *_flags(suite, asked, paths)]
    environment = commands.environment(KUBECONFIG=str(paths.kubeconfig), **conformance_ground.ENVIRONMENT)
    longest = suite.limit + _SLACK
    try:
        with log.open("wb") as said, _group(command, env=environment, stdout=said, stderr=said) as process:
            return process.wait(longest)
    except subprocess.TimeoutExpired as exc:
        raise TestbedError(f"{suite.binary} did not end within {longest:g} s: see {log}") from exc
    except OSError as exc:
        raise TestbedError(f"{suite.binary} cannot be started: {exc.strerror}") from exc


@contextlib.contextmanager
def _group(command: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process group of its own; what is left of it when the caller is interrupted is killed."""
    with subprocess.Popen(command, start_new_session=True, **how) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _flags(suite: Suite, asked: Asked, paths: Paths) -> list[str]:
    own = [f"-class={asked.autoscaler_class}"] if suite.takes_class else []
    return [
        f"-test.run={asked.run}",
        f"-test.timeout={suite.limit}s",
        f"-test.parallel={asked.parallel}",
        f"-kubeconfig={paths.kubeconfig}",
        f"-imagetemplate={conformance_images.TEMPLATE}",
        f"-dockerrepo={images.REGISTRY}",  # unused by the template; the tests judge by it whether there is a registry
        f"-tag={CONFORMANCE.version}",
        f"-test-namespace={conformance_ground.TESTS}",
        f"-spoofinterval={_SPOOF_INTERVAL}",
        f"-spooftimeout={_SPOOF_TIMEOUT}",
        "-enable-alpha",  # as upstream's own runs: what Knative has switched off refuses by itself
        "-enable-beta",
        "-disable-logstream",  # it would follow the logs of all of Knative for each test
        *own,
    ]

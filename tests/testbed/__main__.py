"""`python -m tests.testbed build|tools|up|down|status|images|restart|conformance`.

The exit code is 0, 1 when a step failed, 2 when the arguments are wrong, 3 when the machine lacks something, 130 when
interrupted.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
from collections.abc import Sequence
from typing import Final

from tests.testbed import builds, conformance, paths, versions
from tests.testbed.errors import MachineLacks, TestbedError
from tests.testbed.progress import Progress
from tests.testbed.testbed import COMPONENTS, Testbed

FAILED: Final = 1
LACKS: Final = 3  # the machine cannot run it: another one may
INTERRUPTED: Final = 130  # as a shell tells SIGINT


def main(arguments: Sequence[str]) -> int:
    """Run one command; what went wrong is one line on stderr."""
    asked = _parser().parse_args(arguments)
    progress = Progress()
    try:
        return _run(asked, Testbed(paths.standard(), progress), progress)
    except MachineLacks as exc:
        print(f"testbed: {exc}", file=sys.stderr)
        return LACKS
    except TestbedError as exc:
        print(f"testbed: {exc}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("testbed: interrupted; `up` goes on from here, `down` removes it", file=sys.stderr)
        return INTERRUPTED


def _run(asked: argparse.Namespace, testbed: Testbed, progress: Progress) -> int:
    if asked.command == "build":
        testbed.build(asked.optional)
        if asked.conformance:
            conformance.prepare(paths.standard(), progress)
    elif asked.command == "tools":
        progress("built" if builds.ensure(versions.TOOLS, paths.standard(), progress) else "nothing to do")
    elif asked.command == "up":
        changed = testbed.up(asked.optional, asked.knodel)
        progress("the testbed is up" if changed else "the testbed was up; nothing to do")
    elif asked.command == "down":
        testbed.down()
        progress("the testbed is down")
    elif asked.command == "images":
        progress(f"restarted: {', '.join(testbed.reload_images()) or 'nothing'}")
    elif asked.command == "restart":
        testbed.restart(asked.component)
    elif asked.command == "conformance":
        return _conformance(asked, testbed, progress)
    else:
        return _status(testbed)
    return 0


def _conformance(asked: argparse.Namespace, testbed: Testbed, progress: Progress) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends it also puts the cluster's setting back
    wanted = conformance.Asked(
        asked.autoscaler_class, asked.suites or tuple(conformance.SUITES), asked.run, asked.parallel
    )
    results = conformance.conformance(wanted, paths.standard(), testbed.kubectl, progress)
    shown, deviations = conformance.conclude(wanted, results)
    print(shown)
    for deviation in deviations:
        print(f"testbed: not as {conformance.EXPECTED.name} says: {deviation}", file=sys.stderr)
    return FAILED if deviations else 0


def _status(testbed: Testbed) -> int:
    pids = testbed.pids()
    for name in COMPONENTS:
        print(f"{name:<26}{pids.get(name, 'does not run')}")
    return 0 if len(pids) == len(COMPONENTS) else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("build", "build binaries and images"), ("up", "bring up what is not up")):
        command = commands.add_parser(name, help=text)
        wish = functools.partial(command.add_argument, dest="optional", action="append_const", default=[])
        wish("--eventing", const=versions.EVENTING, help="with Knative Eventing")
        wish("--ray", const=versions.KUBERAY, help="with KubeRay and the image for models of Ray Serve")
        wish("--volcano", const=versions.VOLCANO, help="with Volcano's scheduler and controllers, and a queue")
        wish("--kwok", const=versions.KWOK, help="with KWOK, whose nodes and Pods are objects only")
        wish("--dra", const=versions.DRA, help="with the example driver of Dynamic Resource Allocation")
        if name == "build":
            command.add_argument("--conformance", action="store_true", help="with Knative's own tests and their images")
        if name == "up":
            command.add_argument("--knodel", action="store_true", help="with Knodel, installed from this checkout")
    commands.add_parser("tools", help="build helm and actionlint, which tests of the release run")
    commands.add_parser("down", help="end and remove everything but the cache")
    commands.add_parser("status", help="which components run")
    commands.add_parser("images", help="make and import our images anew, restart what uses them")
    suite = commands.add_parser("conformance", help="Knative's own tests with an autoscaler class")
    suite.add_argument("--class", dest="autoscaler_class", default=conformance.OURS, help="default: %(default)s")
    suite.add_argument("--run", default=".", metavar="REGEX", help="the tests, as `go test -run` takes them")
    suite.add_argument("--suite", dest="suites", action="append", choices=conformance.SUITES, help="default: all")
    suite.add_argument("--parallel", type=int, default=conformance.PARALLEL, help="tests at once; default: %(default)s")
    restart = commands.add_parser("restart", help="end a component when it runs, and start it again")
    restart.add_argument("component", choices=COMPONENTS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

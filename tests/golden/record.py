"""Records the golden traces from a real cluster: `python -m tests.golden.record [CASE…]`.

Each case is played several times, in namespaces of its own; what the recordings share is written to `traces/`. No part
of Knodel is needed on the cluster but the model server's image. Recordings are kept in a folder: a run that was cut off
goes on where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.distribution import VERSION
from clusters.base.errors import ClusterError, KnodelError
from clusters.base.objects import NAMESPACE, Key
from serving.types.settings.settings import ServerSettings
from tests.golden.cases import CASES, play
from tests.golden.files import write_golden
from tests.golden.reduction import reduce
from tests.golden.scene import MANAGER, NAME, Stage
from tests.golden.trace import Trace
from tests.scenarios.world import infer_body
from tests.support.artifacts import ArtifactServer, artifact_server
from tests.support.kourier import find_kourier
from tests.support.kubernetes import KNATIVE_CLASS, find_target, kubernetes_cluster
from tests.testbed.versions import BASE

TIMES = 10
PARALLEL = 2  # cases at once: one for each core of the testbed
DEADLINE = 30  # s; the container has ended several times by then
WINDOW = 20  # s; longer than a busy testbed takes to settle
WITHIN = 180.0  # s for one step
ATTEMPTS = 3  # in a row that may fail
PAUSE = 10.0  # s after a recording that the cluster cut off
QUIET = 3.0  # s; Knative's autoscaler decides every 2 s
IMAGE = f"dev.local/knodel-server:{VERSION}"


async def main(options: argparse.Namespace) -> None:
    """Record what is missing, then write what is complete."""
    target = find_target(options.kubeconfig, options.kube_context)
    options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, artifact_server(Path(folder), target.server) as artifacts:
        async with kubernetes_cluster(target) as cluster, aiohttp.ClientSession() as session:
            stage = make_stage(cluster, artifacts, options.image, await make_ask(cluster, session))
            await _record(stage, options)
    for case in options.cases:
        traces = [_read(_file(options.keep, case, number)) for number in range(options.times)]
        print(write_golden(reduce(case, options.knative, traces)))


def make_stage(cluster: Cluster, artifacts: ArtifactServer, image: str, ask: Callable[[Key], Awaitable[int]]) -> Stage:
    """A real cluster as a stage, with Knative's own autoscaler class."""
    server = ServerSettings(image=image, allow_hosts=artifacts.address)
    return Stage(
        cluster,
        autoscaler_class=KNATIVE_CLASS,
        server=server,
        artifact=artifacts.uri,
        ask=ask,
        deadline=DEADLINE,
        window=WINDOW,
        within=WITHIN,
        quiet=QUIET,
    )


async def make_ask(cluster: Cluster, session: aiohttp.ClientSession) -> Callable[[Key], Awaitable[int]]:
    """How to send an inference to a Service: through Kourier."""
    kourier = await find_kourier(cluster)

    async def ask(key: Key) -> int:
        url = f"{kourier.url}/v2/models/{NAME}/infer"
        async with session.post(url, json=infer_body(1.0), headers={"Host": kourier.host(key)}) as answer:
            return answer.status

    return ask


async def _record(stage: Stage, options: argparse.Namespace) -> None:
    wanted = [(case, number) for number in range(options.times) for case in options.cases]
    missing = deque(one for one in wanted if not _file(options.keep, *one).exists())

    async def work() -> None:
        failures = 0
        while missing:
            case, number = missing.popleft()
            try:
                trace = await _play(case, stage)
            except ClusterError as error:  # a cluster that is restarted, a watch that lost its place: nothing recorded
                failures += 1
                if failures == ATTEMPTS:
                    raise
                print(f"{case} {number + 1}/{options.times}: once more, {error}", flush=True)
                missing.append((case, number))
                await asyncio.sleep(PAUSE)
                continue
            failures = 0
            _file(options.keep, case, number).write_text(json.dumps(trace.to_dict()))
            print(f"{case} {number + 1}/{options.times}: {len(trace.changes)} changes", flush=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(options.parallel):
            group.create_task(work())


async def _play(case: str, stage: Stage) -> Trace:
    """In a namespace that is gone afterwards, whatever happened."""
    namespace = f"golden-{uuid.uuid4().hex[:10]}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await stage.cluster.create(NAMESPACE, made, manager=MANAGER)
    try:
        return await play(case, stage, namespace, SystemClock())
    finally:
        await stage.cluster.delete(NAMESPACE, namespace)


def _file(folder: Path, case: str, number: int) -> Path:
    return folder / f"{case}-{number:02}.json"


def _read(path: Path) -> Trace:
    return Trace.from_dict(json.loads(path.read_text()))


def _options(argv: list[str]) -> argparse.Namespace:
    serving = next(module for module in BASE if module.name == "serving")
    parser = argparse.ArgumentParser(prog="tests.golden.record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} [all]")
    parser.add_argument("--kubeconfig", default="", help="[KUBECONFIG, else the testbed's]")
    parser.add_argument("--kube-context", default="", help="[the current one]")
    parser.add_argument("--image", default=IMAGE, help="of the model server [%(default)s]")
    parser.add_argument("--knative", default=serving.version, help="version to note [%(default)s]")
    parser.add_argument("--times", type=int, default=TIMES, help="recordings of each case [%(default)s]")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="cases at once [%(default)s]")
    parser.add_argument("--keep", type=Path, required=True, help="folder of the recordings")
    found = parser.parse_args(argv)
    found.cases = found.cases or list(CASES)
    return found


def _run(options: argparse.Namespace) -> int:
    code = 0
    try:
        asyncio.run(main(options))
    except* (KnodelError, TimeoutError) as group:
        for error in group.exceptions:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        print("recordings made so far are kept: the same command goes on from there", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(_run(_options(sys.argv[1:])))

"""Rays behind the model server: two at once, kills of every part, a stranger's token, and what one costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.ray_served import RayServed, kill, members_of, ray_served
from tests.testbed.waiting import becomes

pytestmark = pytest.mark.timeout(3600)

GONE_WITHIN = 5.0  # s
BACK_WITHIN = 600.0  # s, on busy cores
MOST_MEMORY = 950.0  # MiB (PSS) of a Ray with one deployment of one replica
MOST_IDLE = 8.0  # percent of a core
IDLE_FOR = 60.0  # s
ONE_DEPLOYMENT = """
from ray import serve
from starlette.requests import Request


@serve.deployment
class Echo:
    async def __call__(self, request: Request) -> bytes:
        return await request.body()


app = Echo.bind()
"""
STRANGER = """
import sys
from ray._raylet import GcsClient

try:
    keys = GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, timeout=10)
except Exception as error:
    print("refused", error)
else:
    print("connected", len(keys))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def answers(served: RayServed) -> bool:
    try:
        return served.ask("/add", b'{"number": 1}').body == b'{"sum":3}'
    except OSError:
        return False


def test_two_rays_run_on_one_machine_and_do_not_know_each_other(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with ray_served(folder / "a", name="a") as first, ray_served(folder / "b", name="b") as second:
        first.await_ready()
        second.await_ready()
        pids = [served.ask("/pid").json["pid"] for served in (first, second)]
        for served, pid in zip((first, second), pids, strict=True):
            assert answers(served)
            assert pid in {member.pid for member in members_of(served.session)}
        sessions = first.session, second.session
    for session in sessions:
        assert is_gone(session), members_of(session)


def test_no_process_is_left_when_the_server_is_killed(folder: Path) -> None:
    with ray_served(folder) as served:
        served.await_ready()
        session = served.session
        served.process.kill()
        assert is_gone(session), members_of(session)


def test_each_part_may_be_killed_and_the_next_request_is_answered(folder: Path) -> None:
    with ray_served(folder) as served:
        served.await_ready()
        kill(members_of(served.session), "ServeReplica:default:Paths")
        assert becomes(lambda: answers(served), BACK_WITHIN, 0.5)
        for part in ("raylet/raylet", "gcs_server", "bin/haproxy", "engines.ray.main", "upstream.guard"):
            session = served.session
            members = members_of(session)
            kill(members, part)
            old = {member.pid for member in members}
            assert becomes(partial(_are_gone, old), GONE_WITHIN), (part, _living(old))
            assert becomes(lambda: answers(served), BACK_WITHIN, 0.5), part
        session = served.session
    assert is_gone(session), members_of(session)


def test_only_a_client_with_the_token_can_connect_to_a_ray(folder: Path) -> None:
    with ray_served(folder) as served:
        served.await_ready()
        raylet = next(member for member in members_of(served.session) if "raylet/raylet" in member.name)
        address = next(word for word in raylet.name.split() if word.startswith("--gcs-address=127.")).partition("=")[2]
        variables = Path(f"/proc/{raylet.pid}/environ").read_bytes().decode().split("\0")
        token = next(one for one in variables if one.startswith("RAY_AUTH_TOKEN=")).partition("=")[2]
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        for mode, told, answer in (
            ("token", token, "connected"), ("token", "wrong", "refused RPC error: InvalidAuthToken"),
            ("disabled", "", "refused RPC error: InvalidAuthToken"),
        ):  # fmt: skip
            environ = {**others, "HOME": str(folder), "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": told}
            done = subprocess.run(
                [sys.executable, "-c", STRANGER, address], env=environ, capture_output=True, text=True, timeout=60
            )
            assert done.stdout.startswith(answer), done.stdout + done.stderr


def test_the_example_answers(folder: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "examples" / "ray", folder / "files")
    with ray_served(folder) as served:
        served.await_ready()
        body = b'{"text": "a wonderful film"}'
        assert served.ask("/score", body).json == {"score": 2}
        assert served.ask("/words", body).body == b"a 0\nwonderful 2\nfilm 0\n"


def test_an_application_that_fails_is_reported_with_its_error(folder: Path) -> None:
    (folder / "files").mkdir()
    text = ONE_DEPLOYMENT.replace(
        "    async def", "    def __init__(self) -> None:\n        raise OSError('no data')\n\n    async def"
    )
    (folder / "files" / "app.py").write_text(text)
    with ray_served(folder) as served:
        assert becomes(lambda: served.process.poll() is not None, BACK_WITHIN)
    assert "no data" in served.log.read_text().splitlines()[-1]


def test_an_idle_ray_costs_little(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "files").mkdir()
    (folder / "files" / "app.py").write_text(ONE_DEPLOYMENT)
    with ray_served(folder) as served:
        served.await_ready()
        assert served.ask("/", b"x").body == b"x"
        time.sleep(20.0)
        before = {member.pid: member.seconds for member in members_of(served.session)}
        time.sleep(IDLE_FOR)
        members = members_of(served.session)
    idle = 100.0 * sum(member.seconds - before.get(member.pid, 0.0) for member in members) / IDLE_FOR
    memory = sum(member.pss for member in members)
    with capsys.disabled():
        print(f"\none replica of Ray Serve: {memory:.0f} MiB (PSS), idle {idle:.1f} % of a core")
        for member in sorted(members, key=lambda member: -member.pss):
            spent = 100.0 * (member.seconds - before.get(member.pid, 0.0)) / IDLE_FOR
            print(f"  {member.pss:4.0f} MiB {spent:5.2f} %  {member.name[:70]}")
    assert memory <= MOST_MEMORY
    assert idle <= MOST_IDLE


def is_gone(session: int) -> bool:
    """Whether no process of the session is left in time."""
    return becomes(lambda: not members_of(session), GONE_WITHIN)


def _are_gone(pids: set[int]) -> bool:
    return not _living(pids)


def _living(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found

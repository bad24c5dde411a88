"""The command, ports and folders of a Ray, and the files that it is loaded from; without Ray's processes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.base.ray_options import RayOptions
from serving.engines.ray.engine import load, settings_of
from serving.engines.ray.key import HEADER, VARIABLE
from serving.engines.ray.logs import LogFollower
from serving.engines.ray.program import LONGEST_TEMP, RayProgram
from serving.engines.ray.settings import INGRESS, INGRESS_PORTS, RaySettings, find_ports
from serving.engines.upstream.client import Address
from serving.storage.base.artifact import Artifact

OPTIONS = EngineOptions(threads=3, memory=4 << 30, timeout=60.0)


def settings(folder: Path, *names: str, application: str = "") -> RaySettings:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    artifact = Artifact(folder, None, uri="file:///m")
    with ModelFolder(artifact) as files:
        return settings_of(artifact, files, OPTIONS._replace(ray=RayOptions(application)))


def test_resources_are_those_of_the_replica(tmp_path: Path) -> None:
    made = settings(tmp_path, "app.py")
    assert (made.cpus, made.object_store, made.timeout) == (3, int(0.1 * (4 << 30)), 60.0)


@pytest.mark.parametrize(
    ("names", "application", "configured"),
    [
        (("app.py",), "", False),
        (("serve.yaml", "app.py"), "", True),
        (("serve.yaml", "app.py"), "app:other", False),
        (("shop/ranker.py",), "shop.ranker:app", False),
        (("shop/__init__.py",), "shop:app", False),
    ],
)
def test_the_application_is_found(tmp_path: Path, names: tuple[str, ...], application: str, configured: bool) -> None:
    made = settings(tmp_path, *names, application=application)
    assert (made.config, made.application) == (configured, application)


@pytest.mark.parametrize(
    ("names", "application", "module"),
    [(("model.py",), "", "app.py"), (("app.py",), "shop.ranker:app", "shop/ranker.py")],
)
def test_files_without_the_application_are_refused(
    tmp_path: Path, names: tuple[str, ...], application: str, module: str
) -> None:
    with pytest.raises(LoadFailed, match=f"file:///m has no serve.yaml and no {module}: add one of them, or name"):
        settings(tmp_path, *names, application=application)


def test_a_server_of_many_models_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="format ray takes all paths of a server"):
        load(Artifact(tmp_path, None, uri="file:///m"), OPTIONS._replace(alone=False))


def test_each_ray_has_its_own_ports(tmp_path: Path) -> None:
    found = [find_ports() for _ in range(2)]
    for ports in found:
        numbers = [getattr(ports, name) for name in ports.__struct_fields__]
        assert len(set(numbers)) == len(numbers) and 0 not in numbers
        assert ports.ingress in INGRESS and ports.ingress + INGRESS_PORTS < INGRESS[-1] + 100


def test_each_start_has_a_new_token_ports_and_a_private_folder_with_a_short_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    made = settings(tmp_path / "files", "app.py")
    with ModelFolder(Artifact(tmp_path / "files", None, uri="file:///m")) as files:
        program = RayProgram(made, files)
        commands = [program.command(tmp_path / "state.sock", "key") for _ in range(2)]
        first, second = (command.environ for command in commands)
        former, temp = (Path(json.loads(command.argv[-1])["temp"]) for command in commands)
        assert not former.parent.exists()
        entrance = program.entrance(Address(tmp_path / "state.sock", "key"))
        assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
        assert first["RAY_SERVE_HAPROXY_CONFIG_FILE_LOC"] != second["RAY_SERVE_HAPROXY_CONFIG_FILE_LOC"]
        assert (first[VARIABLE], first["RAY_AUTH_MODE"], first["RAY_USAGE_STATS_ENABLED"]) == ("key", "token", "0")
        assert entrance.key_header == (HEADER, "key") and entrance.port
        assert len(str(temp)) <= LONGEST_TEMP and temp.parent.stat().st_mode & 0o777 == 0o700
        program.close()
        assert not temp.parent.exists()


def test_lines_of_replicas_are_copied_once_and_whole(tmp_path: Path) -> None:
    output = io.StringIO()
    logs = LogFollower(tmp_path, output)
    file = tmp_path / "worker-1-01-2.err"
    file.write_text(":job_id:01000000\nfirst\nsec")
    logs.follow()
    assert output.getvalue() == "first\n"
    file.write_text(":job_id:01000000\nfirst\nsecond\n")
    (tmp_path / "raylet.out").write_text("other\n")
    logs.follow()
    logs.follow()
    assert output.getvalue() == "first\nsecond\n"
    file.write_text("rotated\n")
    logs.follow()
    assert output.getvalue().endswith("second\nrotated\n")

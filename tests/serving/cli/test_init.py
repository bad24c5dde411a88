"""`knodel init`: what it writes, and that it overwrites nothing. The light templates are trained and served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serving.cli.projects import FIRST_COMMANDS, LLM, NAMES, fill, next_commands, template_files
from serving.types.validation import validate_model
from tests.serving.cli.conftest import Knodel, check
from tests.support.dev import Dev

LIGHT = ("sklearn", "python", "onnx")
"""Templates without packages of their own."""


def create(knodel: Knodel, folder: Path, template: str) -> list[str]:
    """Run `knodel init`; return what it prints."""
    done = knodel("init", str(folder), "--template", template)
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


@pytest.mark.parametrize("template", NAMES)
def test_a_project_has_a_valid_model_its_example_a_test_and_a_readme_without_placeholders(
    knodel: Knodel, tmp_path: Path, template: str
) -> None:
    folder = tmp_path / "my iris"
    lines = create(knodel, folder, template)
    model = yaml.safe_load((folder / "model.yaml").read_text())

    assert list(validate_model(None, model)) == []
    assert model["metadata"]["name"] == "my-iris"
    if template != LLM:
        assert model["spec"]["storageUri"] == (folder / "model").as_uri()
        assert json.loads((folder / "model" / "example.json").read_text())["inputs"]
    assert {"README.md", "requirements.txt", "test_model.py"} <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.rglob("*") if path.is_file() and "{{" in path.read_text()]
    commands = [line.strip() for line in lines[lines.index("next:") + 1 :]]
    readme = (folder / "README.md").read_text()
    assert all(command in readme for command in commands if not command.startswith("cd "))


def test_the_models_of_a_language_model_are_of_the_hub(knodel: Knodel, tmp_path: Path) -> None:
    create(knodel, tmp_path / "chat", LLM)
    for file, named in (("model.yaml", "gguf"), ("vllm.yaml", "vllm")):
        model = yaml.safe_load((tmp_path / "chat" / file).read_text())
        assert list(validate_model(None, model)) == []
        assert (model["metadata"]["name"], model["spec"]["modelFormat"]) == ("chat", named)
        assert model["spec"]["storageUri"].startswith("hf://")
    assert next_commands(LLM, ".", "chat") == ["knodel deploy -f model.yaml --wait", "knodel chat chat"]


def test_files_are_not_overwritten_and_nothing_is_written_beside_them(knodel: Knodel, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    (tmp_path / "README.md").symlink_to("nowhere")

    done = knodel("init", str(tmp_path), "--template", "sklearn", "--name", "iris")

    check(done, 2, ["has README.md, train.py already: choose another folder, or remove them"])
    assert (tmp_path / "train.py").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "README.md"}


def test_other_files_of_the_folder_stay(knodel: Knodel, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    create(knodel, tmp_path / ".", "python")

    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_templates_are_listed(knodel: Knodel) -> None:
    done = knodel("init", "--list")

    assert [line.split()[0] for line in done.out.splitlines()] == list(NAMES)
    assert all(len(line.split()) > 4 for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("iris",), ["no template is given: use --template sklearn|python|onnx|huggingface|llm"]),
        (("iris", "--template", "pytorch"), ["'pytorch' is not one of"]),
        (("9iris", "--template", "onnx"), ["'9iris', the name of the folder", "give one with --name"]),
        (("iris", "--template", "onnx", "--name", "Iris"), ["--name 'Iris' must be lower-case letters"]),
        (("a-file", "--template", "onnx"), ["a-file is a file: choose a folder"]),
    ],
)
def test_wrong_usage_writes_nothing(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()

    check(knodel("init", *arguments), 2, words)
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


def test_a_folder_that_cannot_be_written_is_one_line(knodel: Knodel) -> None:
    check(knodel("init", "/proc/iris", "--template", "onnx"), 1, ["/proc/iris/README.md cannot be written: No such"])


def test_the_next_commands_begin_in_the_folder() -> None:
    assert next_commands("onnx", "my/iris", "iris") == [
        "cd my/iris", "python train.py", "knodel dev model --name iris", "knodel deploy -f model.yaml",
    ]  # fmt: skip
    assert next_commands("python", ".", "iris")[0] == "knodel dev model --name iris"


def test_filling_in_touches_placeholders_only() -> None:
    assert fill({"a": "{{name}} {x} {{uri}}"}, "iris", "file:///m") == {"a": "iris {x} file:///m"}
    assert "about.txt" not in template_files("llm")


@pytest.mark.parametrize("template", LIGHT)
def test_a_light_project_is_trained_and_served_and_answers_its_example(
    knodel: Knodel, tmp_path: Path, template: str
) -> None:
    create(knodel, tmp_path / "iris", template)
    if command := FIRST_COMMANDS.get(template):
        subprocess.run([sys.executable, *command.split()[1:]], cwd=tmp_path / "iris", check=True, capture_output=True)
    example = (tmp_path / "iris" / "model" / "example.json").read_text()

    with Dev(tmp_path / "iris" / "model") as dev:
        dev.wait_for("version 1 serves on")
        dev.wait_for("answers 200 in")
        status, body = dev.post(json.loads(example), "infer")
    assert status == 200 and body["outputs"][0]["shape"][0] == 2


def test_the_tests_of_a_project_pass(knodel: Knodel, tmp_path: Path) -> None:
    create(knodel, tmp_path, "python")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout

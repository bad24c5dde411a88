"""The projects that `knodel init` writes: templates in the folder `templates`, with a name and a URI filled in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from serving.client.errors import ClientError, UsageError

TEMPLATES: Final = Path(__file__).with_name("templates")
ABOUT: Final = "about.txt"
"""The file of a template that describes it on one line; it is not part of a project."""
SERVED: Final = "model"
"""The folder of a project that is served and deployed, unless the Model names a store."""
LLM: Final = "llm"
"""The template without a folder: its Model names a file of the Hub."""
NAMES: Final = ("sklearn", "python", "onnx", "huggingface", LLM)
FIRST_COMMANDS: Final[Mapping[str, str]] = {
    "sklearn": "python train.py", "onnx": "python train.py", "huggingface": "python download.py",
}  # fmt: skip
"""The command that writes the model's files, for templates that do not contain all of them."""


def description(template: str) -> str:
    """Return the description of a template on one line."""
    return (TEMPLATES / template / ABOUT).read_text(encoding="utf-8").strip()


def template_files(template: str) -> dict[str, str]:
    """Return the content of each file of a template by its relative path (POSIX)."""
    root = TEMPLATES / template
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ABOUT and "__pycache__" not in path.parts
    }


def fill(files: Mapping[str, str], name: str, uri: str) -> dict[str, str]:
    """Return the files of a project: the Model is called `name`, and its files are at `uri`. Pure."""
    return {path: text.replace("{{name}}", name).replace("{{uri}}", uri) for path, text in files.items()}


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a folder, which is made if needed.

    Raises UsageError, before anything is written, when a file exists; ClientError when one cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder for the project")
    present = [path for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if present:
        raise UsageError(f"{folder} has {', '.join(present)} already: choose another folder, or remove them")
    for path, text in files.items():
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ClientError(f"{place} cannot be written: {error.strerror}") from error


def next_commands(template: str, folder: str, name: str) -> list[str]:
    """Return the commands that train or download, serve and deploy the project in `folder`. Pure.

    Example:
        next_commands("python", ".", "iris")[0]  # "knodel dev model --name iris"
    """
    enter = [] if folder == "." else [f"cd {folder}"]
    if template == LLM:
        return [*enter, "knodel deploy -f model.yaml --wait", f"knodel chat {name}"]
    first = [FIRST_COMMANDS[template]] if template in FIRST_COMMANDS else []
    return [*enter, *first, f"knodel dev {SERVED} --name {name}", "knodel deploy -f model.yaml"]

"""Reference pages of the command, made from its own parsers: a page for each verb."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from serving.cli.main import SECTIONS, VERBS, knodel

FOLDER = "reference/command"


def command_pages() -> dict[str, str]:
    """Return the path in the site and the text of each page."""
    pages = {f"{FOLDER}/index.md": _overview()}
    for verb in VERBS:
        context = click.Context(knodel, info_name="knodel")
        made = knodel.get_command(context, verb)
        assert made is not None, verb
        pages[f"{FOLDER}/{verb}.md"] = "\n".join(_page(made, context, verb, 1))
    return pages


def _overview() -> str:
    context = click.Context(knodel, info_name="knodel")
    lines = ["# Command", "", "`knodel VERB [OPTIONS]`. Options before the verb:", "", *_options(knodel, context)]
    for title, verbs in SECTIONS.items():
        lines += ["", f"## {title}", "", "| verb | purpose |", "| --- | --- |"]
        lines += [f"| [`{verb}`]({verb}.md) | {_cell(line)} |" for verb, line in verbs.items()]
    return "\n".join(lines) + "\n"


def _page(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}"
    yield from ("", "```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    yield _prose(command.help or "")
    options = list(_options(command, context))
    if options:
        yield from ("", *options)
    if epilog := examples(command, context):
        yield from ("", "```bash", epilog, "```")
    yield ""
    if isinstance(command, click.Group):
        for subcommand in command.list_commands(context):
            made = command.get_command(context, subcommand)
            assert made is not None, subcommand
            yield from _page(made, context, subcommand, level + 1)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = []
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Argument) or parameter.name == "help":
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            rows.append(f"| `{_cell(record[0])}` | {_cell(_prose(record[1]))} |")
    if rows:
        yield from ("| option | purpose |", "| --- | --- |", *rows)


def examples(command: click.Command, context: click.Context) -> str:
    """Return the examples of a command's help, or ""."""
    text = command.get_help(context)
    _, found, block = text.partition("\n  Examples:\n")
    return inspect.cleandoc(block) if found else ""


def _prose(text: str) -> str:
    """Return help text for Markdown: no control characters of click, and literal angle brackets and stars."""
    plain = inspect.cleandoc(text).replace("\b\n", "").replace("\f", "")
    return plain.replace("<", "&lt;").replace("*", "\\*")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())

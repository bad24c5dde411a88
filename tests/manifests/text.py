"""The text of generated YAML files: block style, without aliases, as people write manifests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import yaml

HEAD: Final = "# Made by `make manifests` from {}: do not edit.\n"
WIDTH: Final = 120


class BlockDumper(yaml.SafeDumper):
    """Block style without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class LiteralDumper(BlockDumper):
    """The same, with texts of several lines as literal blocks."""


LiteralDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text.strip() else None),
)


def to_yaml(documents: Iterable[Any], source: str, dumper: type[BlockDumper] = BlockDumper) -> str:
    """Return the text of a generated file."""
    text = yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
    return HEAD.format(source) + text

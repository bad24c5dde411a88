"""What others' errors say, as our messages may repeat it: one line, without what opens a door. Pure.

The loader of kubeconfigs calls an entry by all that is in it, tokens and passwords too; a URL may carry a password; for
YAML a password that begins with `*` is an alias, which it names.
"""

from __future__ import annotations

import re
from typing import Final

_WITHIN_URL: Final = re.compile(r"://[^\s'\"]*@")
_ENTRY: Final = re.compile(r"\{.*\}", re.S)
_ALIAS: Final = re.compile(r"(undefined alias )'[^']*'")


def words_of(error: BaseException) -> str:
    """What it says, by its kind where it says nothing."""
    return harmless(str(error)) or type(error).__name__


def harmless(text: str) -> str:
    """The text on one line, without the content of entries and without what stands before the `@` of a URL."""
    cut = _ENTRY.sub("{…}", _ALIAS.sub(r"\1'…'", _WITHIN_URL.sub("://…@", text)))
    return " ".join(cut.split())

"""Render the templates. Every value is escaped, unless a template made it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from clusters.base.errors import NotFound
from serving.client.models.rollout_view import duration
from serving.cost.texts import money

HERE: Final = Path(__file__).parent
PREFIX: Final = "/dashboard"
MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
NONE: Final = "–"
"""Shown for a value that does not exist."""


class Renderer:
    """The templates of the dashboard."""

    def __init__(self) -> None:
        self._env = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._env.globals |= {"prefix": PREFIX, "static": static_address, "none": NONE}
        self._env.filters |= {
            "rate": rate,
            "ms": milliseconds,
            "share": share,
            "when": when,
            "span": duration,
            "money": money_text,
        }

    def __call__(self, template: str, /, **values: Any) -> Markup:
        """Return the HTML of a template with these values."""
        return Markup(self._env.get_template(template).render(values))  # noqa: S704  # nosec B704 - the template escapes


@cache
def static_file(name: str) -> tuple[bytes, str, str]:
    """Return the content, media type and hash of a bundled file. Raises NotFound."""
    path = HERE / "static" / name
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or path.parent != HERE / "static" or not path.is_file():
        raise NotFound(f"the dashboard has no file {name[:80]!r}")
    content = path.read_bytes()
    return content, media_type, hashlib.sha256(content).hexdigest()[:16]


def static_address(name: str) -> str:
    """Return the address of a bundled file; it changes with the content, so that browsers may keep the file."""
    return f"{PREFIX}/static/{name}?v={static_file(name)[2]}"


def rate(value: float | None) -> str:
    """Return a number per second with three significant digits: `0.083`, `12.4`, `1 250`."""
    if value is None or math.isnan(value):
        return NONE
    if value >= 100:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}" if value >= 0.001 or not value else "<0.001"


def milliseconds(value: float | None) -> str:
    """Return seconds as milliseconds, or as seconds above ten."""
    if value is None or math.isnan(value):
        return NONE
    if value >= 10:
        return f"{value:.3g}\N{NO-BREAK SPACE}s"
    shown = 1000 * value
    return f"{shown:.0f}\N{NO-BREAK SPACE}ms" if shown >= 100 else f"{shown:.2g}\N{NO-BREAK SPACE}ms"


def share(value: float | None) -> str:
    """Return a part of a whole in percent."""
    if value is None or math.isnan(value):
        return NONE
    return f"{100 * value:.3g}\N{NO-BREAK SPACE}%" if 0 < value < 1 else f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def money_text(value: float | None) -> str:
    """Return an amount without its currency."""
    return NONE if value is None else "<0.01" if 0 < value < 0.01 else money(value)


def when(text: str) -> Markup:
    """Return a time (RFC 3339) as an element that the script turns into an age; without it, the time is read."""
    if not text:
        return Markup("–")
    short = text.replace("T", " ").partition(".")[0].removesuffix("Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, text, short)

"""Mermaid pictures as SVG, made when the site is built: the site loads no script for them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

_PICTURE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = (
    '%%{init: {"theme": "neutral", "htmlLabels": false, "fontFamily": "sans-serif", '
    '"flowchart": {"htmlLabels": false, "wrappingWidth": 400}}}%%\n'
)
"""Labels are text of SVG, which every viewer shows."""
_MEASURED, _SHOWN = "font-size:16px", "font-size:14px"
"""Boxes are made for an average font; text of this size fits even in the widest common one."""


def can_render() -> bool:
    """Return whether the package merman is installed. It has no wheel for Linux on Arm."""
    return importlib.util.find_spec("merman") is not None


def render(source: str) -> str:
    """Return a Mermaid picture as SVG. Raises merman.MermanError for a picture that is not valid."""
    import merman

    return str(merman.Merman().render_svg(OPTIONS + source, None)).replace(_MEASURED, _SHOWN)


def width_of(picture: str) -> int:
    """Return the width of an SVG in pixels at its natural size, from its viewBox."""
    found = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ', picture)
    assert found is not None, picture[:200]
    return round(float(found[1]))


def replace_pictures(page: str, save: Callable[[str], str]) -> str:
    """Return the page with each Mermaid block as a picture. `save` stores a block's SVG and returns its address.

    Without merman the blocks stay text.
    """
    if not can_render():
        return page

    def replaced(block: re.Match[str]) -> str:
        picture = render(block[1])
        address = save(picture)
        image = f'<img alt="{_alternative(block[1])}" src="{address}" width="{width_of(picture)}">'
        return f'<p class="picture"><a href="{address}">{image}</a></p>'

    return _PICTURE.sub(replaced, page)


def _alternative(source: str) -> str:
    """Return a text for readers who do not see the picture: its `accTitle`, else its kind."""
    title = re.search(r"^\s*accTitle: ?(.+)$", source, re.MULTILINE)
    return title[1].replace('"', "&quot;") if title else f"{source.split()[0]} picture"

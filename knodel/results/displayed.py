"""How a result shows itself in notebooks and terminals."""

from __future__ import annotations


class Displayed:
    """A result that notebooks show as HTML, and terminals as short text."""

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        from knodel.display.pages import html_of  # on use: programs that show nothing do not pay for it

        return html_of(self)

    def __repr__(self) -> str:
        from knodel.display.texts import text_of

        return text_of(self)

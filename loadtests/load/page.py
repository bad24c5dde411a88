"""The report as one HTML page with embedded style and plots. It loads no other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from loadtests.bench.figure import Figure
from loadtests.load.result import ScenarioResult
from loadtests.simulate.chart import Chart

WIDTH, HEIGHT = 900, 240  # px of a plot
OPEN_LOOP = (
    "Requests are sent when they are due, without waiting for earlier responses (an open loop). The latency of a "
    "response counts from then. Percentiles are of successful responses."
)
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #333a44; max-width: 940px; margin: 2em auto; padding: 0 1em; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.2em; border-top: 1px solid #d8dde3; padding-top: 1em; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .2em .9em .2em 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: #2e8540; } .missed { color: #c1121f; font-weight: 600; }
.legend span { margin-right: 1.2em; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
svg { display: block; width: 100%; } code { background: #f2f4f6; }
"""


def page(title: str, machine: str, results: Sequence[ScenarioResult], method: str = OPEN_LOOP) -> str:
    """Return the HTML document. `method` says how the results were measured."""
    body = "\n".join(line for result in results for line in _scene(result))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1>
<p>{escape(machine)}</p>
<p>{escape(method)}</p>
{_summary(results)}
{body}
</body></html>
"""


def _summary(results: Sequence[ScenarioResult]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{escape(result.name)}">{escape(result.name)}</a></td>'
        f"<td>{_verdict(result.missed)}</td></tr>"
        for result in results
    )
    return f"<table>{rows}</table>"


def _scene(result: ScenarioResult) -> Iterator[str]:
    yield f'<h2 id="{escape(result.name)}">{escape(result.name)}</h2><p>{escape(result.description)}</p>'
    yield f"<table>{''.join(map(_row, result.figures))}</table>"
    if result.notes:
        yield f"<ul>{''.join(f'<li><code>{escape(note)}</code></li>' for note in result.notes)}</ul>"
    for chart in result.charts:
        yield _plot(chart)


def _row(figure: Figure) -> str:
    aim = ""
    if figure.aim is not None:
        aim = f"aim {'≥' if figure.least else '≤'} {figure.aim:g} {figure.unit} {_verdict(figure.missed)}"
    cells = f'<td>{escape(figure.what)}</td><td class="number">{figure.value:,.6g}</td><td>{escape(figure.unit)}</td>'
    return f"<tr>{cells}<td>{aim}</td></tr>"


def _verdict(missed: bool) -> str:
    return '<span class="missed">MISSED</span>' if missed else '<span class="ok">ok</span>'


def _plot(chart: Chart) -> str:
    legend = "".join(
        f'<span><i style="background:{line.colour}"></i>{escape(line.label)}</span>' for line in chart.lines
    )
    lines = "".join(chart.svg(0, WIDTH, HEIGHT))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(chart.title)}">{lines}</svg><p class="legend">{legend}</p>'
    )

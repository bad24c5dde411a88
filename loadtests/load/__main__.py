"""Put a platform of its own under load in several shapes, or with `--soak` for long, and write one page about it."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.bench.machine import described
from loadtests.bench.page import write_page
from loadtests.bench.record import keep, measured_now
from loadtests.load.page import page
from loadtests.load.scene import Scene
from loadtests.load.scenes import SCENES
from loadtests.load.soak import soak
from loadtests.load.stage import Stage

REPORT = Path("build/load")
MINUTES = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when an aim is missed."""
    options = _parsed(arguments)
    name = "soak" if options.soak else "report"
    scenes: list[Scene] = []
    with tempfile.TemporaryDirectory(prefix="knodel-load-") as folder, Stage.at(Path(folder)) as stage:
        for scene in _scenes(stage, options):
            scenes.append(scene)
            print(f"{scene.name}: {scene.story}")
            print("".join(f"  {line}\n" for line in (*scene.figures, *scene.notes)), flush=True)
            _write(options.report / f"{name}.html", scenes)
    if options.keep:
        _keep("soak" if options.soak else "load", scenes)
    return int(any(scene.missed for scene in scenes))


def _scenes(stage: Stage, options: argparse.Namespace) -> Iterator[Scene]:
    if options.soak:
        yield soak(stage, options.minutes * 60.0)
        return
    for name in options.only:
        play, size = SCENES[name]
        yield play(
            stage, dataclasses.replace(size, seconds=size.seconds * options.longer, rate=size.rate * options.more)
        )


def _write(path: Path, scenes: Sequence[Scene]) -> None:
    """What is known so far: a run that is broken off leaves a page, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page("Knodel under load", str(described()), scenes), encoding="utf-8")
    print(f"  {path}\n", flush=True)


def _keep(part: str, scenes: Sequence[Scene]) -> None:
    figures = [
        dataclasses.replace(figure, what=f"{scene.name} · {figure.what.strip()}")
        for scene in scenes
        for figure in scene.figures
    ]
    write_page(keep({part: measured_now(figures)}))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.load", description=__doc__)
    add = parser.add_argument
    add("--only", choices=list(SCENES), nargs="+", default=list(SCENES), help="loads to run [all]")
    add("--longer", type=float, default=1.0, metavar="X", help="so many times as long [%(default)g]")
    add("--more", type=float, default=1.0, metavar="X", help="so many times the requests a second [%(default)g]")
    add("--soak", action="store_true", help="one steady load instead, and what each process holds meanwhile")
    add("--minutes", type=float, default=MINUTES, help="of the soak [%(default)g]")
    add("--report", type=Path, default=REPORT, metavar="FOLDER", help="where the page goes [%(default)s]")
    add("--keep", action="store_true", help="write the figures to docs/evidence/performance.md, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Convert KServe's sample objects, serve stand-ins for their artifacts, and write docs/evidence/kserve-samples.md.

    python -m tests.samples.measure CHECKOUT            print the page
    python -m tests.samples.measure CHECKOUT --write    write it
    … --also website=DIR                                count another repository of KServe too

CHECKOUT is a checkout or a bare git repository of github.com/kserve/kserve. Nothing of it is kept but these figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from serving.importing.conversion import Conversion
from serving.importing.convert import convert
from tests.samples.documents import Sample, commit_of, samples, unique_services
from tests.samples.serving import serve, stores
from tests.samples.stand_ins import class_of

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "kserve-samples.md"
INFERENCE_SERVICE, KNATIVE_SERVICE = "InferenceService", "Knative Service"
Place = tuple[str, str, str]
"""Class, kind of store and layout of an artifact; equal ones need only one stand-in."""
ABOUT = {
    "sklearn": "scikit-learn, pickled",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "onnx": "ONNX",
    "tensorflow": "TensorFlow SavedModel",
    "triton": "Triton repository of a SavedModel",
    "torchscript": "Triton repository of TorchScript",
    "paddle": "PaddlePaddle",
}
HEAD = """# KServe's samples

How much of the sample objects in KServe's own repository does `knodel import` convert, and would the Models serve?
Measured with {commit}: all YAML files in `docs`, `test`, `hack` and `python`.

    git clone https://github.com/kserve/kserve && make kserve-samples CHECKOUT=kserve  # ALSO='--also NAME=DIR'

"""


ARTIFACTS = """The artifacts are in stores that cannot be reached here. So a model of the same format is trained, put
into a store on this machine at the same path, and served by the converted format and address: S3 (moto) for `gs` and
`s3`, a web server, a registry. Its answer to one request is compared with the library's own."""
RELEASES = """The stand-ins are saved by the libraries' current releases. Old artifacts may need to be saved again:
XGBoost 3.1 and newer cannot read the binary format of early `.bst` files, and pickles depend on the release of
scikit-learn."""


def kind_of(sample: Sample) -> str:
    """Return the kind for the table; kinds of other projects are one."""
    version, kind = str(sample.document.get("apiVersion")), str(sample.document["kind"])
    if version.startswith("serving.knative.dev/") and kind == "Service":
        return KNATIVE_SERVICE
    return kind if version.startswith(("serving.kserve.io/", "serving.kubeflow.org/")) else "of other projects"


def place_of(uri: str, model_format: str) -> Place:
    """Return what distinguishes the artifact of a Model from others."""
    scheme, _, rest = uri.partition("://")
    kind = {"gs": "object store", "s3": "object store", "http": "web server", "https": "web server"}.get(scheme, scheme)
    last = rest.partition("?")[0].rstrip("/").rpartition("/")[2]
    layout = "archive" if last.endswith(".tar.gz") else "file" if "." in last and kind != "oci" else "folder"
    return class_of(uri, model_format), kind, layout


def page(
    found: Sequence[Sample], broken: Sequence[str], commit: str, serve_one: Callable[[str, str], str]
) -> str:  # fmt: skip
    """Return the page. `serve_one` serves a stand-in for a storage URI and format."""
    conversions = [(kind_of(sample), convert(sample.document)) for sample in found]
    services = [one for kind, one in conversions if kind == INFERENCE_SERVICE]
    models = [one.models[0]["spec"] for one in services if one.models]
    places = Counter(place_of(spec["storageUri"], spec.get("modelFormat", "")) for spec in models)
    first = {place_of(spec["storageUri"], spec.get("modelFormat", "")): spec for spec in reversed(models)}
    outcomes = {place: serve_one(spec["storageUri"], spec.get("modelFormat", "")) for place, spec in first.items()}
    return HEAD.format(commit=commit) + "\n".join(
        [
            *_kinds(conversions, broken),
            "",
            *_summary(services, models, places, outcomes),
            "",
            *_classes(places, outcomes),
            "",
            *_reasons(services),
            "",
            *_fields(services),
        ]
    )


def _kinds(conversions: Sequence[tuple[str, Conversion]], broken: Sequence[str]) -> Iterator[str]:
    yield "| kind | objects | all fields | some fields left out | not converted |"
    yield "|---|--:|--:|--:|--:|"
    counts = Counter((kind, _outcome(one)) for kind, one in conversions)
    kinds = Counter(kind for kind, _ in conversions)
    for kind, total in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
        cells = [counts[kind, outcome] for outcome in ("all", "some", "none")]
        yield f"| {kind} | {total} | {' | '.join(str(cell or '') for cell in cells)} |"
    yield ""
    yield f"{len(broken)} files are not YAML (templates with placeholders, and keys given twice)."


def _summary(
    services: Sequence[Conversion], models: Sequence[Mapping[str, str]], places: Counter[Place],
    outcomes: Mapping[Place, str],
) -> Iterator[str]:  # fmt: skip
    served = sum(count for place, count in places.items() if outcomes[place] == "served")
    yield (
        f"**{len(models)} of {len(services)} InferenceServices convert ({_percent(len(models), len(services))}), and "
        f"{served} of these {len(models)} serve ({_percent(served, len(models))}).**"
    )


def _classes(places: Counter[Place], outcomes: Mapping[Place, str]) -> Iterator[str]:
    yield ARTIFACTS
    yield ""
    yield "| artifact | store | layout | InferenceServices | stand-in |"
    yield "|---|---|---|--:|---|"
    for place, count in sorted(places.items(), key=lambda item: (-item[1], item[0])):
        name, store, layout = place
        yield f"| {ABOUT[name]} | {store} | {layout} | {count} | {outcomes[place]} |"
    yield ""
    yield RELEASES


def _reasons(services: Sequence[Conversion]) -> Iterator[str]:
    yield "| InferenceServices that are not converted, because | |"
    yield "|---|--:|"
    reasons = Counter(_short(one.left_out[0].why) for one in services if not one.models)
    for why, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f"| {why} | {count} |"


def _fields(services: Sequence[Conversion]) -> Iterator[str]:
    yield "| field that was left out, because | InferenceServices |"
    yield "|---|--:|"
    fields = Counter(
        why for one in services if one.models for why in {_short(field.why) for field in one.left_out}
    )  # fmt: skip
    for why, count in sorted(fields.items(), key=lambda item: (-item[1], item[0])):
        yield f"| {why} | {count} |"
    yield ""


def _repositories(checkouts: Sequence[tuple[str, Path]]) -> Iterator[str]:
    yield "The different InferenceServices in all YAML files and Markdown pages of KServe's repositories:"
    yield ""
    yield "| repository | commit | InferenceServices | all fields | some fields left out | not converted |"
    yield "|---|---|--:|--:|--:|--:|"
    for name, checkout in checkouts:
        counts = Counter(_outcome(convert(document)) for document in unique_services(checkout))
        cells = " | ".join(str(counts[outcome]) for outcome in ("all", "some", "none"))
        yield f"| kserve/{name} | {commit_of(checkout)} | {counts.total()} | {cells} |"


def _short(why: str) -> str:
    return why.partition("'")[0].rstrip() if why.startswith(("metadata.", "spec.storageUri")) else why


def _outcome(one: Conversion) -> str:
    return "none" if not one.models else "some" if one.left_out else "all"


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %" if whole else "none"


def main() -> int:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=DIR")
    given = parser.parse_args()
    found, broken = samples(given.checkout)
    with tempfile.TemporaryDirectory() as folder, stores(Path(folder)) as here:
        text = page(found, broken, commit_of(given.checkout), lambda uri, name: serve(here, uri, name))
    others = [(name, Path(place)) for name, _, place in (one.partition("=") for one in given.also)]
    text += "\n".join(["", *_repositories([("kserve", given.checkout), *others]), ""])
    if given.write:
        PAGE.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

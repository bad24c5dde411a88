"""Bad input by surface, and the answer that a trusted system gives to it. Data.

A test that proves a row, wherever it stands, carries `@pytest.mark.bad_input("KEY")` with the row's key, and
`tests.doors.table` runs them all and writes `docs/evidence/bad-input.md`. A row that nothing here can prove says why.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of bad input at one surface."""

    key: str
    given: str
    answer: str
    learned_from: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Surface:
    """Where input comes in, and through which doors."""

    name: str
    doors: str
    rows: tuple[Row, ...]


EVENTS = Surface(
    "Event webhook",
    "`POST /events` of the embedded platform and of `serving/platform/webhook_main.py`; structured, binary and batch; "
    "foreign senders",
    (
        Row(
            "event-missing",
            "missing `id`, `source`, `type`, `specversion`",
            "400, all faults at once",
            "cloudevents 2.2.0 invents an id",
        ),
        Row(
            "event-unreadable",
            "no JSON, an array, bad UTF-8, a bad `time`, 100 000 brackets",
            "400, never 500",
            "five exception classes of the SDK",
        ),
        Row(
            "event-ambiguous",
            "keys twice, `NaN`, bad `data_base64`, data that are not of their type",
            "400",
            "parser differentials",
        ),
        Row(
            "event-attributes",
            "`%0d%0a` in an id, an id of 1 MB, a source that is no URI, upper-case extensions",
            "400; escaped in logs",
        ),
        Row(
            "event-protocol",
            "other methods, other formats, specversion 9, batches that are none",
            "405 with Allow, 415, 400, 413",
        ),
        Row(
            "event-size",
            "more than 1 MiB, with and without a length; more than all bodies together may have",
            "413 before it is read; 429",
        ),
        Row(
            "event-signature",
            "no, short, wrong, other algorithm's signature; stale; `.` in an id; copies of a header",
            "401 in constant time, nothing decoded",
            "ADA-23-2, -3, -11",
        ),
        Row("event-token", "unsigned, expired, other audience, issuer or key", "401"),
        Row(
            "event-address",
            "`http://169.254.169.254`, `file:///etc/passwd`, `localhost.evil`, `#`/`?`/`..` tricks, decimal addresses",
            "403: only configured prefixes",
            "CVE-2023-43654, CVE-2024-35198, CVE-2025-54381, CVE-2024-1483",
        ),
        Row("event-tenant", "a known sender speaks of another tenant's model", "403"),
        Row("event-meaning", "a change that is none: bad name, address, digest, version", "400"),
    ),
)
INFERENCE = Surface(
    "Inference",
    "v2, v1, generate, server-sent events, CloudEvents over HTTP; gRPC",
    (
        Row(
            "infer-malformed",
            "empty, cut off, deep, 5 000-digit, lone surrogate, `NaN`, keys twice, no UTF-8",
            "400 in the protocol's error form",
            "plain Starlette answers 500",
        ),
        Row(
            "infer-tensors",
            "shape × type is not the length, negative and overflowing shapes, unknown types, names twice,"
            " sizes that lie, texts for numbers",
            "400 before anything is allocated",
            "CVE-2025-23310, CVE-2025-23327",
        ),
        Row(
            "infer-parameters",
            "unbounded counts, regular expressions, templates, code",
            "no effect, or 400",
            "CVE-2026-34756, GHSA-vrq3-r879-7m65",
        ),
        Row(
            "infer-pickle",
            "pickles and other serialised objects, in bodies and headers",
            "415; nothing unpickles",
            "CVE-2024-2912, CVE-2025-27520, CVE-2025-32444",
        ),
        Row(
            "infer-forms",
            "multipart without end, a million parts, boundaries of dashes",
            "415 before it is read",
            "CVE-2023-30798, CVE-2024-47874, CVE-2024-9056",
        ),
        Row("infer-ranges", "thousands of ranges", "no effect; no file is served", "CVE-2025-62727"),
        Row("infer-names", "`../x`, `%2e%2e`, NUL, look-alikes, 10 kB", "404 or 400", "CVE-2025-23316, CVE-2026-47487"),
        Row(
            "infer-leaks",
            "whatever makes a model or the server fail",
            "an opaque id, details in the log",
            "CVE-2025-23320",
        ),
        Row(
            "infer-size",
            "too large, compressed bombs, too many numbers",
            "413",
            "memory of default servers grew by 500 MiB",
        ),
        Row(
            "infer-grpc",
            "the same through gRPC: raw and typed contents that lie, broken messages, compression",
            "INVALID_ARGUMENT and the like",
        ),
    ),
)
FRAMING = Surface(
    "Framing",
    "gateway, model server, control API (plain and TLS), activator, probes and metrics of the controllers",
    (
        Row(
            "framing-ambiguous",
            "length and chunks, two lengths, bad chunks, folded headers, no or two Hosts, absolute targets",
            "400 and the end of the connection",
            "CVE-2025-43859, CVE-2024-1135",
        ),
        Row("framing-heads", "heads of 200 kB, hundreds of headers, heads that drip", "431; 408"),
        Row("framing-internal", "headers of ours from a client", "taken away at the edge"),
        Row("framing-connection", "`Connection` names headers that are not the hop's", "they stay"),
        Row(
            "framing-http2",
            "streams without end, rapid reset",
            "a bound on streams; others are answered",
            "CVE-2023-44487",
        ),
    ),
)
MANAGEMENT = Surface(
    "Management",
    "control API, also as API server for kubectl; data ports",
    (
        Row("manage-stranger", "every verb without the token", "401, nothing told", "CVE-2023-48022"),
        Row(
            "manage-browser",
            "foreign Origin, DNS rebinding, DELETE by a page",
            "403 on every method",
            "CVE-2025-62593, CVE-2026-27482",
        ),
        Row("manage-data-port", "load, unload and settings on the data port", "404", "CVE-2023-31036, CVE-2026-24207"),
        Row("manage-bodies", "bodies that parsers disagree about, without end, of other types", "400, 413, 415"),
        Row("manage-patches", "patches that are none, that copy into themselves, of other objects", "400, 422"),
        Row(
            "manage-queries",
            "selectors, versions, dry runs and times that are none, or as long as a head",
            "400 or 422 at once",
        ),
        Row("manage-names", "names and paths that lead elsewhere", "404, 422"),
    ),
)
ARTIFACTS = Surface(
    "Model artifacts",
    "every store (file, http, s3, gs, hf, oci, pvc), archives, every engine",
    (
        Row("artifact-code", "pickle, joblib, Python", "refused unless the namespace allows code"),
        Row(
            "artifact-unsafe",
            'what "safe" loaders let through',
            "types vetted; never a fall back to pickle",
            "CVE-2025-32434, CVE-2025-54412, CVE-2025-54886",
        ),
        Row(
            "artifact-onnx",
            "external data outside of the folder, through links, in attributes",
            "refused",
            "CVE-2024-27318, CVE-2025-51480",
        ),
        Row(
            "artifact-headers",
            "headers that lie about lengths and places",
            "refused before allocation",
            "attacks on safetensors; that format itself is refused as unknown",
        ),
        Row(
            "artifact-archives",
            "`..`, absolute, links, devices, bombs, 10⁶ entries, names twice",
            "the whole archive is refused, nothing is left",
            "CVE-2025-4517, CVE-2025-15031, CVE-2026-109156",
        ),
        Row("artifact-changed", "cut off, changed, other digest, replaced while it loads", "refused with both digests"),
        Row("artifact-addresses", "private addresses, redirects to them, answers without end", "refused"),
    ),
)
OBJECTS = Surface(
    "Custom resources",
    "CRD with schema, CEL and policies; the embedded API server; `knodel render` and `deploy`",
    (
        Row(
            "object-model",
            "replicas −1, `NaN`, 10⁹; min > max; traffic ≠ 100; unknown fields; long names",
            "refused at admission with the field's path",
        ),
        Row(
            "object-others",
            "the same of WarmPools, EventSources, ModelEvents, Secrets, Namespaces",
            "refused at admission with the field's path",
        ),
        Row("object-knative", "hostPath, privileged, host namespaces in a pod template", "refused as Knative does"),
        Row(
            "object-metadata",
            "annotations of 1 MB, labels that are none, owners that are none",
            "refused at admission with the field's path",
        ),
        Row("object-references", "a revision, namespace or secret of others", "refused, or a condition that says so"),
    ),
)
SCRAPES = Surface(
    "Metrics scrape",
    "model server pages, queue-proxy, activators, Prometheus",
    (
        Row(
            "scrape-size",
            "pages without end, drips, silence",
            "deadline and cap; others are not late",
            "CVE-2023-48713",
        ),
        Row("scrape-values", "`NaN`, infinities, negative, 10³⁰⁸, texts, stale times", "rejected and counted"),
        Row("scrape-lies", "a replica that claims more than it can hold", "cut to what it can"),
    ),
)
COMMAND = Surface(
    "Command and files",
    "`-f`, options, settings file, variables, answers of servers",
    (
        Row(
            "command-yaml",
            "tags, bombs of anchors, keys twice, dates, 3 MB",
            "one line with file and place; exit 2",
            "CVE-2026-24123",
        ),
        Row(
            "command-options",
            "shell characters, names like options, `..`, control characters",
            "one line with the field; exit 2; no shell anywhere",
            "CVE-2026-35043, ADA-23-7",
        ),
        Row("command-files", "no text, absent, a folder, a pipe, too large", "one line; exit 2"),
        Row("command-settings", "unknown keys and variables, values out of bounds", "one line with the key"),
        Row("command-servers", "escape codes, HTML, no JSON, without end", "one line, escaped"),
    ),
)
SURFACES = (EVENTS, INFERENCE, FRAMING, MANAGEMENT, ARTIFACTS, OBJECTS, SCRAPES, COMMAND)
ROWS = {row.key: row for surface in SURFACES for row in surface.rows}

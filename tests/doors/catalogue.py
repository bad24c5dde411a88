"""The catalogue of bad input: for each surface, the kinds of bad input and the required response.

A test that covers a row carries `@pytest.mark.bad_input("KEY")` with the row's key. `tests.doors.table` runs these
tests and writes `docs/evidence/bad-input.md`. A row that cannot be tested here has a `reason`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of bad input at one surface.

    `learned_from` lists advisories and projects in which this input caused a fault.
    """

    key: str
    given: str
    answer: str
    learned_from: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Surface:
    """A surface that accepts input, and its entry points."""

    name: str
    doors: str
    rows: tuple[Row, ...]


EVENTS = Surface(
    "Event webhook",
    "`POST /events` of the embedded platform and of `serving/platform/webhook_main.py`; structured, binary and batch "
    "mode; webhooks of other services",
    (
        Row(
            "event-missing",
            "missing `id`, `source`, `type`, `specversion`",
            "400 that lists all faults",
            "cloudevents 2.2.0 generates a missing id",
        ),
        Row(
            "event-unreadable",
            "not JSON, an array, invalid UTF-8, an invalid `time`, 100 000 nested brackets",
            "400, never 500",
            "the SDK raises five classes of exceptions",
        ),
        Row(
            "event-ambiguous",
            "duplicate keys, `NaN`, invalid `data_base64`, data that do not match `datacontenttype`",
            "400",
            "parser differentials",
        ),
        Row(
            "event-attributes",
            "`%0d%0a` in an id, an id of 1 MB, a source that is not a URI, upper-case extension names",
            "400; escaped in logs",
        ),
        Row(
            "event-protocol",
            "other methods, other formats, specversion 9, invalid batches",
            "405 with Allow, 415, 400, 413",
        ),
        Row(
            "event-size",
            "more than 1 MiB, with and without Content-Length; more than the limit of all bodies together",
            "413 before the body is read; 429",
        ),
        Row(
            "event-signature",
            "a missing, short or wrong signature, another algorithm, an old timestamp, `.` in an id, duplicate headers",
            "401 in constant time, before the body is decoded",
            "ADA-23-2, -3, -11",
        ),
        Row("event-token", "a token that is unsigned or expired, or has another audience, issuer or key", "401"),
        Row(
            "event-address",
            "`http://169.254.169.254`, `file:///etc/passwd`, `localhost.evil`, `#`/`?`/`..` tricks, decimal addresses",
            "403: only allowed prefixes are accepted",
            "CVE-2023-43654, CVE-2024-35198, CVE-2025-54381, CVE-2024-1483",
        ),
        Row("event-tenant", "an event of an authenticated sender about another tenant's model", "403"),
        Row("event-meaning", "a model event with an invalid name, URI, digest or version", "400"),
    ),
)
INFERENCE = Surface(
    "Inference",
    "v2, v1, generate, MLflow's invocations, server-sent events, CloudEvents over HTTP; gRPC",
    (
        Row(
            "infer-malformed",
            "empty, truncated or deeply nested JSON, 5 000 digits, a lone surrogate, `NaN`, duplicate keys,"
            " invalid UTF-8",
            "400 in the protocol's error format",
            "plain Starlette returns 500",
        ),
        Row(
            "infer-tensors",
            "data that do not match shape and type, negative and overflowing shapes, unknown types, duplicate names,"
            " false sizes, strings in place of numbers",
            "400 before memory is allocated",
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
            "pickles and other serialized objects, in bodies and headers",
            "415; nothing is unpickled",
            "CVE-2024-2912, CVE-2025-27520, CVE-2025-32444",
        ),
        Row(
            "infer-forms",
            "endless multipart bodies, a million parts, boundaries of dashes",
            "415 before the body is read",
            "CVE-2023-30798, CVE-2024-47874, CVE-2024-9056",
        ),
        Row("infer-ranges", "thousands of byte ranges", "no effect: no files are served", "CVE-2025-62727"),
        Row(
            "infer-names",
            "model names with `../x`, `%2e%2e`, NUL, similar Unicode letters, 10 kB",
            "404 or 400",
            "CVE-2025-23316, CVE-2026-47487",
        ),
        Row(
            "infer-leaks",
            "input that makes a model or the server fail",
            "500 with an opaque id; details only in the log",
            "CVE-2025-23320",
        ),
        Row(
            "infer-size",
            "too large bodies, compression bombs, too many numbers",
            "413",
            "servers with defaults grew by 500 MiB",
        ),
        Row(
            "infer-grpc",
            "the same over gRPC: wrong raw and typed contents, malformed messages, compression",
            "INVALID_ARGUMENT or the matching code",
        ),
    ),
)
FRAMING = Surface(
    "Framing",
    "gateway, model server, control API (plain and TLS), activator, probes and metrics of the controllers",
    (
        Row(
            "framing-ambiguous",
            "Content-Length with chunks, two lengths, invalid chunks, folded headers, no or two Host headers,"
            " absolute targets",
            "400, and the connection is closed",
            "CVE-2025-43859, CVE-2024-1135",
        ),
        Row("framing-heads", "headers of 200 kB, hundreds of headers, headers sent byte by byte", "431; 408"),
        Row("framing-internal", "internal headers sent by a client", "removed by the gateway"),
        Row("framing-connection", "a `Connection` header that lists end-to-end headers", "these headers are kept"),
        Row(
            "framing-http2",
            "endless streams, rapid reset",
            "the number of streams is limited; other clients are served",
            "CVE-2023-44487",
        ),
    ),
)
MANAGEMENT = Surface(
    "Management",
    "control API, including its Kubernetes API for kubectl; data ports",
    (
        Row("manage-stranger", "every request without the token", "401 without details", "CVE-2023-48022"),
        Row(
            "manage-browser",
            "another Origin, DNS rebinding, DELETE from a web page",
            "403 on every method",
            "CVE-2025-62593, CVE-2026-27482",
        ),
        Row("manage-data-port", "load, unload and settings on the data port", "404", "CVE-2023-31036, CVE-2026-24207"),
        Row("manage-bodies", "ambiguous or endless bodies, other content types", "400, 413, 415"),
        Row(
            "manage-patches",
            "invalid patches, patches that copy a value into itself, patches of other objects",
            "400, 422",
        ),
        Row(
            "manage-queries",
            "invalid or very long selectors, versions, dry-run values and times",
            "400 or 422 at once",
        ),
        Row("manage-names", "names and paths that traverse to other resources", "404, 422"),
    ),
)
ARTIFACTS = Surface(
    "Model artifacts",
    "every kind of storage (file, http, s3, gs, hf, oci, pvc), archives, every engine",
    (
        Row("artifact-code", "pickle, joblib, Python", "rejected unless the namespace allows code"),
        Row(
            "artifact-unsafe",
            'types that "safe" loaders accept',
            "types are checked against a list; no fallback to pickle",
            "CVE-2025-32434, CVE-2025-54412, CVE-2025-54886",
        ),
        Row(
            "artifact-onnx",
            "external data outside of the folder, through links or in attributes",
            "rejected",
            "CVE-2024-27318, CVE-2025-51480",
        ),
        Row(
            "artifact-headers",
            "headers with false lengths and offsets",
            "rejected before memory is allocated",
            "attacks on safetensors, a format that Knodel does not load",
        ),
        Row(
            "artifact-archives",
            "`..`, absolute paths, links, devices, decompression bombs, 10⁶ entries, duplicate names",
            "the whole archive is rejected and its files are removed",
            "CVE-2025-4517, CVE-2025-15031, CVE-2026-109156",
        ),
        Row(
            "artifact-changed",
            "truncated, changed, another digest, replaced during the load",
            "rejected with both digests",
        ),
        Row(
            "artifact-description",
            "`config.pbtxt` that is not text, of another grammar, nested 40 times, with unknown fields, names outside",
            "rejected with the file, the line or the field",
        ),
        Row("artifact-addresses", "private addresses, redirects to them, endless responses", "rejected"),
        Row(
            "artifact-uploads",
            "local files for a cluster that are absent, empty, too large, changing or outside of their folder; a store "
            "that refuses them or breaks off; damaged records of unfinished uploads",
            "rejected with the store's message, and nothing is deployed; a damaged record starts the upload over",
        ),
    ),
)
OBJECTS = Surface(
    "Custom resources",
    "CRD with schema, CEL and policies; the embedded API server; `knodel render` and `deploy`",
    (
        Row(
            "object-model",
            "replicas −1, `NaN`, 10⁹; min > max; traffic ≠ 100; unknown fields; long names",
            "rejected at admission with the field's path",
        ),
        Row(
            "object-others",
            "the same for WarmPools, EventSources, ModelEvents, Secrets, Namespaces",
            "rejected at admission with the field's path",
        ),
        Row(
            "object-knative",
            "hostPath, privileged, host namespaces in an object of Knative",
            "405: callers of the embedded cluster cannot write these kinds; on Kubernetes Knative's webhook rejects it",
        ),
        Row(
            "object-metadata",
            "annotations of 1 MB, invalid labels, invalid owner references",
            "rejected at admission with the field's path",
        ),
        Row(
            "object-references",
            "a reference to another's revision, namespace or secret",
            "rejected, or reported in a condition",
        ),
    ),
)
SCRAPES = Surface(
    "Metrics scrape",
    "model server pages, queue-proxy, activators, Prometheus",
    (
        Row(
            "scrape-size",
            "endless pages, pages sent byte by byte, no response",
            "limited time and size; other scrapes are not delayed",
            "CVE-2023-48713",
        ),
        Row(
            "scrape-values", "`NaN`, infinities, negative numbers, 10³⁰⁸, text, old timestamps", "rejected and counted"
        ),
        Row(
            "scrape-lies", "a replica that reports more work than its concurrency allows", "limited to that concurrency"
        ),
    ),
)
COMMAND = Surface(
    "Command and files",
    "`-f`, options, settings file, environment variables, responses of servers",
    (
        Row(
            "command-yaml",
            "YAML with tags, anchor bombs, duplicate keys, dates, 3 MB",
            "one line with file and line number; exit code 2",
            "CVE-2026-24123",
        ),
        Row(
            "command-options",
            "shell characters, names that look like options, `..`, control characters",
            "one line with the field; exit code 2; no shell is used",
            "CVE-2026-35043, ADA-23-7",
        ),
        Row(
            "command-files", "a file that is not text, missing, a folder, a pipe or too large", "one line; exit code 2"
        ),
        Row("command-settings", "unknown keys and variables, values out of range", "one line with the key"),
        Row(
            "command-servers",
            "responses with escape codes, HTML or invalid JSON, endless responses",
            "one line, escaped",
        ),
    ),
)
SURFACES = (EVENTS, INFERENCE, FRAMING, MANAGEMENT, ARTIFACTS, OBJECTS, SCRAPES, COMMAND)
ROWS = {row.key: row for surface in SURFACES for row in surface.rows}

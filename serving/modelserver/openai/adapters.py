"""Load and unload the LoRA adapters of an engine while it serves, according to the platform's list.

A changed adapter is loaded beside the former one, then requests get it, and the former one is unloaded once no request
uses it. A removed one gets no requests from then on, and is unloaded likewise. An adapter that cannot be loaded
does not affect others: its fault is reported, its former files stay in use, and loading is retried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from clusters.base.backoff import Backoff
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from serving.engines.base.engine import Adapter, Engine
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.upstream.adapters import ServedAdapter
from serving.engines.upstream.engine import UpstreamEngine
from serving.modelserver.base.adapter_list import AdapterList, AdapterListFile, changes_to
from serving.modelserver.base.llm import AdapterSource
from serving.modelserver.base.stats import AdapterReport, Stats
from serving.modelserver.execution.adapters import AdapterFiles, FetchAdapter, fetch_adapter
from serving.storage.base.digest import PREFIX

log = logging.getLogger(__name__)

PERIOD: Final = 1.0  # s between two readings of the list
FIRST_RETRY, LONGEST_RETRY = 10.0, 300.0  # s until an adapter that could not be loaded is tried again
GRACE: Final = 5.0  # s for a step that still fetches files when the server ends
MOST_FAULTS, LONGEST_FAULT = 4, 400
"""Faults that are reported and bytes of each: the page of statistics has at most 4 KiB. The log has all."""
_BACKOFF: Final = Backoff(FIRST_RETRY, LONGEST_RETRY)
_SHOWN: Final = 12  # hex digits of a digest in the name of an adapter whose files were replaced


class _Loaded(NamedTuple):
    source: AdapterSource
    served: ServedAdapter
    folder: ModelFolder
    unload_at: float = 0.0  # of one that could not be unloaded: when it is tried again


class _Failure(NamedTuple):
    source: AdapterSource
    message: str
    attempts: int
    again_at: float


class AdapterSync:
    """Keeps the adapters of one engine equal to the list in `file`, from `attach` to `close`.

    `prepare` fetches the files of the first list, before the engine is started with room for them. All methods block.
    """

    def __init__(
        self, model: str, file: AdapterListFile, fetch: FetchAdapter, stats: Stats,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._model = model
        self._file = file
        self._fetch = fetch
        self._stats = stats
        self._monotonic = monotonic
        self._engine: UpstreamEngine | None = None
        self._list = AdapterList("")
        self._unreadable = ""  # why the list could not be read
        self._fetched: dict[AdapterSource, AdapterFiles] = {}
        self._loaded: dict[str, _Loaded] = {}
        self._leaving: list[_Loaded] = []
        self._failures: dict[str, _Failure] = {}
        self._digests: dict[str, str] = {}  # name in the engine → digest of its files
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="adapters", daemon=True)

    def prepare(self) -> Sequence[Adapter]:
        """Read the list and fetch its adapters; return those that could be fetched."""
        self._read()
        for source in self._list.adapters:
            try:
                self._fetched[source] = fetch_adapter(source, self._fetch)
            except EngineError as error:
                self._fail(source, error)
        return [files.adapter for files in self._fetched.values()]

    def attach(self, engine: Engine) -> None:
        """Load the adapters of the list into the engine, then follow the list in a thread. Raises LoadFailed."""
        if not isinstance(engine, UpstreamEngine):
            raise LoadFailed("this engine does not load adapters while it serves: name another modelFormat")
        self._engine = engine
        self.step()
        self._thread.start()

    def step(self) -> None:
        """Read the list if it has changed, and do what is due."""
        self._read()
        engine, now = self._engine, self._monotonic()
        if engine is None:
            return
        changes = changes_to(self._list.adapters, {name: one.source for name, one in self._loaded.items()})
        for name in changes.remove:
            engine.adapters.remove(name)
            self._leaving.append(self._loaded.pop(name))
            log.info("the adapter %s is removed", name)
        self._unload_idle(engine)
        self._failures = {name: one for name, one in self._failures.items() if one.source in changes.load}
        for source in changes.load:
            failure = self._failures.get(source.name)
            if failure is None or failure.again_at <= now:
                self._load(engine, source)
        faults = {name: failure.message for name, failure in sorted(self._failures.items())[:MOST_FAULTS]}
        self._stats.adapters = AdapterReport(self._list.id, faults)

    def close(self) -> None:
        """Stop, and release all files. The engine is closed before."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(GRACE)
        for folder in (
            *(one.folder for one in (*self._loaded.values(), *self._leaving)),
            *(files.folder for files in self._fetched.values()),
        ):
            folder.close()

    def _run(self) -> None:
        while not self._closing.wait(PERIOD):
            try:
                self.step()
            except Exception:  # the next step may succeed
                log.exception("the adapters cannot be changed")

    def _read(self) -> None:
        """Read the list. An invalid one changes nothing."""
        try:
            self._list = self._file.read() or self._list
            self._unreadable = ""
        except (KnodelError, OSError) as error:
            if str(error) != self._unreadable:
                log.warning("the list of adapters cannot be read: %s", error)
            self._unreadable = str(error)

    def _load(self, engine: UpstreamEngine, source: AdapterSource) -> None:
        """Load an adapter and direct requests to it, in place of the former one of its name."""
        try:
            files = self._fetched.pop(source, None) or fetch_adapter(source, self._fetch)
        except EngineError as error:
            self._fail(source, error)
            return
        model = self._name_for(source.name, files.digest)
        former = self._loaded.get(source.name)
        present = [one for one in (*self._leaving, former) if one is not None and one.served.model == model]
        if present:  # the same files, perhaps from another address
            files.folder.close()
            loaded = present[0]._replace(source=source)
        else:
            try:
                engine.load_adapter(files.adapter, model)
            except KnodelError as error:
                files.folder.close()
                self._fail(source, error)
                return
            loaded = _Loaded(source, ServedAdapter(source.name, model), files.folder)
            self._digests.setdefault(model, files.digest)
        engine.adapters.put(loaded.served)
        self._leaving = [one for one in self._leaving if one not in present]
        if former is not None and former not in present:
            self._leaving.append(former)
        self._loaded[source.name] = loaded
        self._failures.pop(source.name, None)
        log.info("the adapter %s is served", source.name)

    def _name_for(self, adapter: str, digest: str) -> str:
        """Return the name of an adapter's files in the engine; other files have another name.

        It is `NAME:ADAPTER` for the first files. Engines may keep what they computed with a name for later requests.
        """
        plain = f"{self._model}:{adapter}"
        if self._digests.get(plain, digest) == digest:
            return plain
        return f"{plain}@{digest.removeprefix(PREFIX)[:_SHOWN]}"

    def _unload_idle(self, engine: UpstreamEngine) -> None:
        """Unload the adapters that no request uses any more, and release their files."""
        now = self._monotonic()
        for one in [one for one in self._leaving if one.unload_at <= now and engine.adapters.is_idle(one.served)]:
            self._leaving.remove(one)
            try:
                engine.unload_adapter(one.served.model)
            except KnodelError as error:  # the engine still has it, and gets no requests for it
                log.warning("%s", error)
                self._leaving.append(one._replace(unload_at=now + LONGEST_RETRY))
            else:
                one.folder.close()

    def _fail(self, source: AdapterSource, error: Exception) -> None:
        """Record why an adapter cannot be loaded, and when it is tried again."""
        before = self._failures.get(source.name)
        attempts = before.attempts + 1 if before is not None and before.source == source else 0
        message = one_line(str(error)).removeprefix(f"adapter {source.name!r} ")
        message = message.encode()[:LONGEST_FAULT].decode(errors="ignore")
        again_at = self._monotonic() + _BACKOFF.delay(attempts)
        self._failures[source.name] = _Failure(source, message, attempts, again_at)
        log.warning("the adapter %s cannot be loaded: %s", source.name, message)

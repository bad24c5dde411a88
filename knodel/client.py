"""The clients of a platform: `Client` for threads, `AsyncClient` for asyncio, with the same operations."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from knodel.display.progress import new_progress
from knodel.operations import chat as chatting
from knodel.operations import inference, rollouts
from knodel.operations import models as stored
from knodel.operations.chat import Messages
from knodel.operations.core import ClientCore, check_name, parse_url
from knodel.results.chat import Chat
from knodel.transport.asynchronous import AsyncDriver, async_iterator, awaitable
from knodel.transport.common import check_client
from knodel.transport.tasks import AsyncHttpxTransport
from knodel.transport.threads import HttpxTransport
from serving.client.blocking import BlockingDriver, blocking, blocking_iterator
from serving.client.errors import UsageError
from serving.client.inference.chat import TIMEOUT as CHAT_TIMEOUT
from serving.client.platform_ref import DEFAULT_NAMESPACE
from serving.client.targets import find_target

M = TypeVar("M", bound=Callable[..., Any])


def described_by(operation: Callable[..., Any]) -> Callable[[M], M]:
    """Return a decorator that gives a method the docstring of an operation."""

    def describe(method: M) -> M:
        method.__doc__ = operation.__doc__
        return method

    return describe


class KnodelWarning(UserWarning):
    """A warning of an operation, for example that a replica has not started yet."""


class Client:
    """A client of a Knodel platform, for one or several threads.

    Without arguments it is for the platform that the command finds: by KNODEL_ENV, KNODEL_KUBE_CONTEXT or KNODEL_STATE,
    else the default environment, else the platform of this machine. `state` gives a state folder, `kube_context` a
    context of the kubeconfig, `env` an environment of `knodel env`. `namespace` is that of the environment or context,
    else `default`.

    `url` with `api_key` (sent as `Authorization: Bearer`) is for inference requests only, to a gateway, to one model,
    or to another server of the Open Inference Protocol.

    `http_client` is a client of httpx2 or httpx that sends inference requests; it is not closed. `retries` limits how
    often a request that certainly was not executed is sent again. `progress=False` shows no progress.

    Raises Invalid for contradictory arguments. That no platform runs is raised by the first operation.

    Example:
        with knodel.Client() as client:
            client.deploy("iris.onnx", "iris")
            client.predict("iris", [[5.1, 3.5, 1.4, 0.2]])["output-0"]
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str = "",
        state: str | os.PathLike[str] | None = None,
        kube_context: str | None = None,
        env: str | None = None,
        namespace: str | None = None,
        http_client: Any = None,
        retries: int = 3,
        progress: bool = True,
    ) -> None:
        check_client(http_client, asynchronous=False)
        self._transport = HttpxTransport(http_client)
        weakref.finalize(self, HttpxTransport.close_all, self._transport).atexit = False
        self.core = _core(url, api_key, state, kube_context, env, namespace, retries)
        self.driver = BlockingDriver(self._transport, lambda: new_progress(progress), _warn, self.core.advise)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; another call opens new ones."""
        self._transport.close_all()

    deploy = blocking(stored.deploy)
    predict = blocking(inference.predict)
    get = blocking(stored.get)
    models = blocking(stored.models)
    wait = blocking(stored.wait)
    delete = blocking(stored.delete)
    history = blocking(stored.history)
    explain = blocking(stored.explain)
    events = blocking(stored.events)
    logs = blocking_iterator(stored.logs)
    traffic = blocking(rollouts.traffic)
    rollout = blocking_iterator(rollouts.rollout)
    promote = blocking(rollouts.promote)
    pause = blocking(rollouts.pause)
    resume = blocking(rollouts.resume)
    abort = blocking(rollouts.abort)
    rollback = blocking(rollouts.rollback)
    emit_training_completed = blocking(stored.emit_training_completed)

    @overload
    def chat(
        self, name: str, messages: Messages, *, stream: Literal[False] = False, adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> Chat: ...  # fmt: skip

    @overload
    def chat(
        self, name: str, messages: Messages, *, stream: Literal[True], adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> Iterator[str]: ...  # fmt: skip

    @described_by(chatting.chat)
    def chat(
        self, name: str, messages: Messages, *, stream: bool = False, adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> Chat | Iterator[str]:  # fmt: skip
        if stream:
            return self.driver.iterate(chatting.chat(
                self.core, name, messages, stream=True, adapter=adapter, tag=tag, timeout=timeout, **parameters
            ))  # fmt: skip
        return self.driver.run(
            chatting.chat(
                self.core, name, messages, stream=False, adapter=adapter, tag=tag, timeout=timeout, **parameters
            )
        )


class AsyncClient:
    """A client of a Knodel platform for asyncio, with the arguments and operations of `Client`.

    Example:
        async with knodel.AsyncClient() as client:
            answer = await client.predict("iris", [[5.1, 3.5, 1.4, 0.2]])
            async for step in client.rollout("iris"):
                print(step)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str = "",
        state: str | os.PathLike[str] | None = None,
        kube_context: str | None = None,
        env: str | None = None,
        namespace: str | None = None,
        http_client: Any = None,
        retries: int = 3,
        progress: bool = True,
    ) -> None:
        check_client(http_client, asynchronous=True)
        self._transport = AsyncHttpxTransport(http_client)
        self.core = _core(url, api_key, state, kube_context, env, namespace, retries)
        self.driver = AsyncDriver(self._transport, lambda: new_progress(progress), _warn, self.core.advise)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; another call opens new ones."""
        await self._transport.close_all()

    deploy = awaitable(stored.deploy)
    predict = awaitable(inference.predict)
    get = awaitable(stored.get)
    models = awaitable(stored.models)
    wait = awaitable(stored.wait)
    delete = awaitable(stored.delete)
    history = awaitable(stored.history)
    explain = awaitable(stored.explain)
    events = awaitable(stored.events)
    logs = async_iterator(stored.logs)
    traffic = awaitable(rollouts.traffic)
    rollout = async_iterator(rollouts.rollout)
    promote = awaitable(rollouts.promote)
    pause = awaitable(rollouts.pause)
    resume = awaitable(rollouts.resume)
    abort = awaitable(rollouts.abort)
    rollback = awaitable(rollouts.rollback)
    emit_training_completed = awaitable(stored.emit_training_completed)

    @overload
    def chat(
        self, name: str, messages: Messages, *, stream: Literal[False] = False, adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> Coroutine[Any, Any, Chat]: ...  # fmt: skip

    @overload
    def chat(
        self, name: str, messages: Messages, *, stream: Literal[True], adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> AsyncIterator[str]: ...  # fmt: skip

    @described_by(chatting.chat)
    def chat(
        self, name: str, messages: Messages, *, stream: bool = False, adapter: str = "",
        tag: str | None = None, timeout: float = CHAT_TIMEOUT, **parameters: Any,
    ) -> Coroutine[Any, Any, Chat] | AsyncIterator[str]:  # fmt: skip
        if stream:
            return self.driver.iterate(chatting.chat(
                self.core, name, messages, stream=True, adapter=adapter, tag=tag, timeout=timeout, **parameters
            ))  # fmt: skip
        return self.driver.run(
            chatting.chat(
                self.core, name, messages, stream=False, adapter=adapter, tag=tag, timeout=timeout, **parameters
            )
        )


def _core(
    url: str | None,
    api_key: str,
    state: str | os.PathLike[str] | None,
    kube_context: str | None,
    env: str | None,
    namespace: str | None,
    retries: int,
) -> ClientCore:
    """Return the core of a client. Raises UsageError for contradictory arguments."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries is {retries!r}: give a number, such as 3; with 0, each request is sent once")
    if namespace is not None:
        check_name(namespace, "namespace")
    if api_key and url is None:
        raise UsageError("api_key is for the URL of models: give url as well")
    if url is not None:
        if state or kube_context or env:
            raise UsageError("a URL and a platform are given: omit the URL, or state, kube_context and env")
        return ClientCore(None, namespace or DEFAULT_NAMESPACE, parse_url(url, api_key), retries)
    folder = os.fspath(state) if state is not None else None
    found = find_target(folder, kube_context, env, names=("state", "kube_context", "env"))
    given = {"--namespace": namespace, "--state": folder, "--kube-context": kube_context, "--env": env}
    options = {option: value for option, value in given.items() if value}
    return ClientCore(found.ref, namespace or found.namespace, retries=retries, options=options)


def _warn(text: str) -> None:
    warnings.warn(text, KnodelWarning, stacklevel=2)

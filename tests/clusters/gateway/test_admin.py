"""Closing the connection to Envoy during other requests, as at the end of a platform during changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from clusters.base.errors import KnodelError
from clusters.gateway.admin import Admin
from clusters.gateway.bootstrap import ADMIN_SOCKET
from clusters.net import unix_sockets


async def test_closing_while_others_ask_gives_them_answers_or_a_known_error(tmp_path: Path) -> None:
    async def stats(_: web.Request) -> web.Response:
        return web.Response(text="")

    app = web.Application()
    app.router.add_get("/stats", stats)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, unix_sockets.listen(tmp_path / ADMIN_SOCKET)).start()
    admin, surprises = Admin(tmp_path), []

    async def ask() -> None:
        for _ in range(30):
            try:
                await admin.active_requests()
            except KnodelError:
                pass
            except Exception as error:
                surprises.append(repr(error))

    async def close() -> None:
        for _ in range(30):
            await admin.close()
            await asyncio.sleep(0)

    await asyncio.gather(ask(), ask(), close())
    await admin.close()
    await runner.cleanup()
    assert surprises == []

"""/metrics and /healthz over HTTP."""

from __future__ import annotations

import asyncio
import json
import time

import psycopg
from prometheus_client import generate_latest

from launcher import log
from launcher.db import DatabaseAway
from launcher.state import State

FRESH_S = 2.0  # scrapes closer together than this share one query
REQUEST_S = 5.0


class MetricsServer:
    """Duty metrics: a small HTTP server. /metrics for Prometheus, /healthz for supervisors (200 or 503, with JSON)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link("metrics")
        self._refreshed = 0.0

    async def run(self) -> None:
        host, _, port = self._state.config.metrics.rpartition(":")
        server = await asyncio.start_server(self._serve, host.strip("[]"), int(port))
        log.info("metrics", address=self._state.config.metrics)
        async with server:
            await self._state.finished.wait()
        await self.close()

    async def close(self) -> None:
        await self._link.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
                status, kind, body = await self.answer(request[1].decode() if len(request) > 1 else "")
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close"
                writer.write(head.encode() + b"\r\n\r\n" + body)
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str) -> tuple[str, str, bytes]:
        """Status line, content type and body for a path."""
        if path == "/metrics":
            await self.refresh()
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", generate_latest(self._state.metrics.registry)
        if path == "/healthz":
            health = self._state.health
            good = bool(health.get("database"))
            return ("200 OK" if good else "503 Service Unavailable"), "application/json", json.dumps(health).encode()
        return "404 Not Found", "text/plain", b"/metrics or /healthz\n"

    async def refresh(self) -> None:
        """Ask the database for the planner's figures, unless just asked; without it the old figures stay."""
        metrics, now = self._state.metrics, time.monotonic()
        for part, value in self._state.health.items():
            if isinstance(value, bool):
                metrics.healthy.labels(part).set(value)
        if now - self._refreshed < FRESH_S:
            return
        self._refreshed = now
        try:
            metrics.planner.take(
                await self._link.call("select maestro.launcher_metrics(%s)", metrics.planner.after_tick)
            )
        except (DatabaseAway, psycopg.Error) as error:
            log.warning("no planner metrics", error=error)

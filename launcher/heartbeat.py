"""Duty heartbeat: registers the launcher and keeps its claims alive, on a connection of its own."""

from __future__ import annotations

import json
import os
import socket
import time
from importlib import metadata

from launcher import log
from launcher.db import Backoff, DatabaseAway, away
from launcher.state import State, first_of


def version() -> str:
    try:
        return metadata.version("maestro-for-postgresql")
    except metadata.PackageNotFoundError:
        return "unknown"


class Heartbeat:
    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link("heartbeat")

    async def run_once(self) -> None:
        """One beat; registers first when the database does not know this launcher. Raises DatabaseAway."""
        state = self._state
        sent_at = time.monotonic()
        if not state.launcher_id:
            state.launcher_id = await self._link.call(
                "select maestro.register_launcher(%s, %s, %s)", socket.gethostname(), os.getpid(), version()
            )
            log.info("registered", launcher_id=state.launcher_id, version=version())
        answer = await self._link.call(
            "select maestro.heartbeat_launcher(%s, %s, %s::jsonb)",
            state.launcher_id, state.draining.is_set(), json.dumps(state.health),
        )  # fmt: skip
        if not answer["known"]:
            log.warning("launcher row is gone, registering anew", launcher_id=state.launcher_id)
            state.launcher_id = 0
            return await self.run_once()
        state.claim_seconds = float(answer["claim_seconds"])
        state.confirm_seconds = float(answer["confirm_seconds"])
        # From when the beat was sent: the database's own moment lies between then and now.
        state.heard_at = sent_at
        state.registered.set()
        state.health["database"] = True

    async def run(self) -> None:
        state = self._state
        backoff = Backoff(max_s=state.config.heartbeat_s)
        while not state.finished.is_set():
            state.beat("heartbeat")
            seconds = state.config.heartbeat_s
            try:
                await self.run_once()
                backoff.reset()
            except DatabaseAway as error:
                state.health["database"] = False
                seconds = away("heartbeat", error, backoff)
            await first_of(state.finished, timeout_s=seconds)
        await self._leave()
        state.rest("heartbeat")

    async def _leave(self) -> None:
        """Sign off: what we still hold is free at once. Without the database our claims expire instead."""
        try:
            if self._state.launcher_id:
                await self._link.call("select maestro.leave_launcher(%s)", self._state.launcher_id)
        except DatabaseAway as error:
            log.warning("could not sign off", error=error)
        finally:
            await self._link.close()

"""Duty listen: wakes the claiming duties when a tick has booked or a kill was ordered.

A notification is a hint; polling is the promise.
"""

from __future__ import annotations

import asyncio
import os
import secrets

import psycopg

from launcher import log
from launcher.db import Backoff, DatabaseAway, Link, away
from launcher.state import State, first_of

SELF_TEST_S = 2.0
PING_S = 30.0


class Listen:
    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link("listen")

    async def run_once(self) -> bool:
        """Listen until the connection breaks. False when notifications do not arrive here at all."""
        connection = await self._link.connection()
        await connection.execute("listen maestro_launch")
        await connection.execute("listen maestro_order")
        if not await self._self_test(connection):
            self._state.health["listen"] = False
            log.error(
                "notifications do not arrive: working by polling alone. Is there a transaction pooler in between? "
                "Give the launcher a direct connection",
                poll_s=self._state.config.poll_s,
            )
            return False
        self._state.health["listen"] = True
        log.info("listening")
        # What was notified before we listened.
        self._wake()
        while not self._state.draining.is_set():
            async for _ in connection.notifies(timeout=PING_S, stop_after=1):
                self._wake()
            await connection.execute("select 1")  # notices a connection that is gone
        return True

    def _wake(self) -> None:
        self._state.wake_launch.set()
        self._state.wake_orders.set()

    async def _self_test(self, connection: psycopg.AsyncConnection[object]) -> bool:
        """Whether a notification from another session reaches this one."""
        channel = f"maestro_self_test_{os.getpid()}_{secrets.token_hex(4)}"
        sender = Link(self._state.dsn, "self test")
        await connection.execute(f"listen {channel}")
        try:
            await sender.call("select pg_notify(%s, '')", channel)
            loop = asyncio.get_running_loop()
            until = loop.time() + SELF_TEST_S
            while (left := until - loop.time()) > 0:
                async for notice in connection.notifies(timeout=left, stop_after=1):
                    if notice.channel == channel:
                        return True
                    self._wake()
            return False
        finally:
            await sender.close()
            await connection.execute(f"unlisten {channel}")

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        backoff = Backoff()
        # The wait for notifications ends with the drain.
        ender = asyncio.ensure_future(self._state.draining.wait())
        work = asyncio.ensure_future(self._work(backoff))
        try:
            await asyncio.wait({ender, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for each in (ender, work):
                each.cancel()
            await asyncio.gather(ender, work, return_exceptions=True)
            await self._link.close()

    async def _work(self, backoff: Backoff) -> None:
        while not self._state.draining.is_set():
            try:
                if not await self.run_once():
                    return
                backoff.reset()
            except (DatabaseAway, psycopg.OperationalError) as error:
                self._state.health["listen"] = False
                seconds = away("listen", DatabaseAway(str(error).splitlines()[0]), backoff)
                await self._link.close()
                await first_of(self._state.draining, timeout_s=seconds)

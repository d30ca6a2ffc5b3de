"""Duty orders: tells hosts what else there is to tell: kill a frame, restart when idle.

RQD knows running frames by frame id alone, so a kill meant for an old booking would hit a newer one of the same frame:
the host is asked first whose it is.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

from launcher import log
from launcher.db import Backoff, DatabaseAway, away
from launcher.rqd import Silent
from launcher.state import State, first_of

BATCH = 200
HOSTS_AT_ONCE = 64
ATTEMPTS_MAX = 5


class Orders:
    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link("orders")
        self._turns = asyncio.Semaphore(HOSTS_AT_ONCE)

    async def run_once(self) -> int:
        """Claim a batch, carry it out, store what came of it; returns its size. Raises DatabaseAway."""
        orders = await self._link.call("select maestro.claim_orders(%s, %s)", self._state.launcher_id, BATCH)
        by_host: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for order in orders:
            by_host[order["host_name"] or ""].append(order)
        results = await asyncio.gather(*(self._host(name, mine) for name, mine in by_host.items()))
        flat = [result for mine in results for result in mine]
        if flat:
            await self._link.call(
                "select maestro.finish_orders(%s, %s::jsonb)", self._state.launcher_id, json.dumps(flat)
            )
        return len(orders)

    async def _host(self, name: str, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Carry out one host's orders. A host that is silent gets no more of them now."""
        results = []
        words = "" if name else "the host is gone"
        async with self._turns:
            target = self._state.rqds.target(name, orders[0]["dial"])
            if name and not await self._state.rqds.connect(target):
                words = f"no connection to {target}"
            for order in orders:
                if not words:
                    try:
                        await self._carry_out(name, target, order)
                    except Silent as error:
                        words = str(error)
                results.append(self._result(name, order, words))
        return results

    async def _carry_out(self, name: str, target: str, order: dict[str, Any]) -> None:
        rqds = self._state.rqds
        if order["kind"] == "restart_idle":
            await rqds.restart_idle(name, target)
            return
        frame = order["pk_frame"]
        if order["pk_proc"]:
            holder = (await rqds.running(name, target, [frame])).get(frame)
            if holder != order["pk_proc"]:
                log.info("nothing to kill", host=name, frame=frame, proc=order["pk_proc"], holder=holder)
                return
        await rqds.kill(name, target, frame, order["reason"])

    def _result(self, name: str, order: dict[str, Any], words: str) -> dict[str, Any]:
        outcome = "done"
        if words:
            outcome = "failed" if not name or order["attempts"] >= ATTEMPTS_MAX else "retry"
        (log.warning if words else log.info)(
            "order", kind=order["kind"], outcome=outcome, host=name, frame=order["pk_frame"], proc=order["pk_proc"],
            reason=order["reason"], said=words,
        )  # fmt: skip
        self._state.metrics.orders.labels(outcome).inc()
        return {"order_id": order["order_id"], "outcome": outcome, "error": words or None}

    async def run(self) -> None:
        state = self._state
        backoff = Backoff()
        await first_of(state.registered, state.draining)
        while not state.draining.is_set():
            state.wake_orders.clear()
            seconds = state.config.poll_s
            try:
                if state.holds_claims():
                    await self.run_once()
                backoff.reset()
            except DatabaseAway as error:
                seconds = away("orders", error, backoff)
            await first_of(state.wake_orders, state.draining, timeout_s=seconds)
        await self._link.close()

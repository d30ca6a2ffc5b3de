"""Duty verify: asks hosts about bookings that no report has confirmed for a while, and settles those that ended unseen.

RQD reports the end of a frame once. When nobody was there to take it, the frame would stay RUNNING for minutes: this
duty finds it within half a minute, reads from its log how it ended, and reports that in RQD's place.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from typing import Any

import psycopg

from launcher import inquiry, log
from launcher.db import Backoff, DatabaseAway, Refused, away
from launcher.inquiry import Booking, Finding, Verdict
from launcher.state import State, first_of

BATCH = 1000
HOSTS_AT_ONCE = 64
SILENT_HOST_S = 30.0  # a host that did not answer is left alone this long, so that it cannot fill the batches


class Verify:
    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link("verify")
        self._turns = asyncio.Semaphore(HOSTS_AT_ONCE)
        self._silent_until: dict[str, float] = {}

    async def run_once(self) -> dict[str, int]:
        """One pass; returns verdict -> bookings. Raises DatabaseAway."""
        now = time.monotonic()
        self._silent_until = {name: until for name, until in self._silent_until.items() if until > now}
        rows = await self._link.call(
            "select maestro.claim_unconfirmed(%s, %s, %s::text [])",
            self._state.launcher_id, BATCH, list(self._silent_until),
        )  # fmt: skip
        by_host: dict[tuple[str, str], list[Booking]] = defaultdict(list)
        for row in rows:
            target = self._state.rqds.target(row["host_name"], row["dial"])
            by_host[row["host_name"], target].append(
                Booking(row["pk_proc"], row["pk_frame"], row["job_name"], row["frame_name"], row["log_dir"])
            )
        counts: dict[str, int] = defaultdict(int)
        # Each host is settled as its answers come: one that is slow to fail does not delay the others.
        await asyncio.gather(*(self._host(name, target, mine, counts) for (name, target), mine in by_host.items()))
        return dict(counts)

    async def _host(self, name: str, target: str, bookings: list[Booking], counts: dict[str, int]) -> None:
        async with self._turns:
            findings = await inquiry.inquire(
                self._state.rqds, name, target, bookings, self._state.config.confirm_gap_s
            )
        results: list[dict[str, Any]] = []
        ended: list[dict[str, object]] = []
        for booking in bookings:
            finding = findings[booking.pk_proc]
            counts[finding.verdict.value] += 1
            match finding.verdict:
                case Verdict.SILENT:
                    self._silent_until[name] = time.monotonic() + SILENT_HOST_S
                case Verdict.RUNNING:
                    results.append({"pk_proc": booking.pk_proc, "outcome": "running"})
                case Verdict.ENDED if finding.ending is not None:
                    self._tell(name, booking, finding)
                    ended.append(inquiry.completion(booking, name, finding.ending))
                case _:
                    self._tell(name, booking, finding)
                    self._state.metrics.lost.inc()
                    results.append({"pk_proc": booking.pk_proc, "outcome": "lost"})
        if ended:
            await self._report(ended)
        if results:
            await self._link.call("select maestro.finish_unconfirmed(%s::jsonb)", json.dumps(results))

    async def _report(self, ended: list[dict[str, object]]) -> None:
        try:
            await self._link.call("select maestro.report_completion(%s::jsonb)", json.dumps(ended))
            self._state.metrics.salvaged.inc(len(ended))
        except Refused as error:
            log.error("completions from logs refused", error=error)

    @staticmethod
    def _tell(name: str, booking: Booking, finding: Finding) -> None:
        log.warning(
            "ended unreported", verdict=finding.verdict.value, host=name, job=booking.job_name,
            frame=booking.frame_name, proc=booking.pk_proc, said=finding.words,
            exit_status=finding.ending.exit_status if finding.ending else None,
        )  # fmt: skip

    async def run(self) -> None:
        state = self._state
        backoff = Backoff()
        await first_of(state.registered, state.draining)
        while not state.draining.is_set():
            seconds = state.config.verify_s
            try:
                await self._unless_draining()
                backoff.reset()
            except DatabaseAway as error:
                seconds = away("verify", error, backoff)
            except psycopg.Error as error:
                log.exception("verify failed", error)
            await first_of(state.draining, timeout_s=seconds)
        await self.close()

    async def close(self) -> None:
        await self._link.close()

    async def _unless_draining(self) -> None:
        """A pass, dropped at a drain: it holds nothing, and the next launcher does it again."""
        work = asyncio.ensure_future(self.run_once())
        ender = asyncio.ensure_future(self._state.draining.wait())
        try:
            await asyncio.wait({work, ender}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for each in (work, ender):
                each.cancel()
            await asyncio.gather(work, ender, return_exceptions=True)

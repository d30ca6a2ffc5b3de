"""Duty launch: claims bookings from the outbox, tells the hosts, and stores what came of it.

A booking goes claim -> its host's queue -> sent -> outcome -> stored. One host's bookings are handled one after the
other by a task of that host; hosts do not wait for each other. What may already have reached the host (an earlier
attempt, a call without an answer) is asked about before it is sent again.
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launcher import inquiry, log
from launcher.db import Backoff, DatabaseAway, Refused, away, rows_of
from launcher.inquiry import Booking, Verdict
from launcher.recycle import rss_mb
from launcher.rqd import Sent
from launcher.runframe import CannotRun, run_frame
from launcher.state import State, first_of

FINISH_BATCH = 1000
FINISH_GATHER_S = 0.02  # outcomes that come this close together are stored in one call
# How long at most a host that refused a frame, or did not answer, gets none of that size; a report of it that says
# something new ends it sooner.
BARRED_REFUSED_S = 300.0
BARRED_UNREACHED_S = 60.0
FRESH_S = 5.0  # what was claimed longer ago is not sent: the booking may be gone, or its host closed
SLOW_S = 1.0  # a host that takes longer to answer keeps nobody from claiming
BUSY_S = 0.02  # before more is claimed while a batch of what was claimed can be sent and is not yet
CONNECTING_MAX = 512  # connection attempts at once: they cost little, and must not hold up calls that could be made


@dataclass(slots=True, eq=False)
class Launch:
    """One claimed booking on its way."""

    row: dict[str, Any]
    layer: dict[str, Any]
    job: dict[str, Any]
    claimed_at: float  # monotonic, as the others
    give_up_at: float  # of a host that cannot be reached
    believe_until: float  # of a host that answers questions, but no launch
    in_doubt: bool  # an attempt may have reached the host
    sent: bool = False  # by us, and no answer that tells
    words: str = ""  # why it is still on its way

    @property
    def booking(self) -> Booking:
        row = self.row
        return Booking(row["pk_proc"], row["pk_frame"], self.job["name"], row["frame_name"], self.job["log_dir"])


class _Host:
    """A host's queue; its task lives while there is something in it."""

    def __init__(self, name: str, target: str, reachable: bool) -> None:
        self.name = name
        self.target = target
        self.to_send: deque[Launch] = deque()
        self.to_ask: list[Launch] = []
        self.backoff: Backoff | None = None
        self.reachable = reachable  # as far as is known: one that nobody called yet is
        self.called_at = math.inf  # monotonic, of a connection or a call without an answer yet
        self.task: asyncio.Task[None] | None = None


class LaunchDuty:
    def __init__(self, state: State) -> None:
        self._state = state
        self._claims = state.link("claim")
        self._finishes = state.link("finish")
        self._reports = state.link("salvage")
        self._hosts: dict[str, _Host] = {}
        self._results: list[dict[str, Any]] = []
        self._have_results = asyncio.Event()
        self._calls = asyncio.Semaphore(state.config.launch_concurrency)
        self._connecting = asyncio.Semaphore(CONNECTING_MAX)
        # Hosts whose last call went unanswered share few calls, so that the others are not held up by them.
        self._doubtful_calls = asyncio.Semaphore(max(state.config.launch_concurrency // 4, 1))
        self._doubtful: set[str] = set()
        self._active: set[_Host] = set()
        self._after = 0  # the launch claimed last: new ones have higher ids
        self._look_back_at = 0.0  # monotonic; then launches with lower ids are claimed as well
        self._claimed: Counter[int] = Counter()  # launch ids -> claims whose outcome is not known to be stored
        self._answer_lost = False  # the last claim may have been stored all the same
        self._no_more = False  # claiming and sending are over: store what is left and end
        self.at_boundary: Callable[[], None] = lambda: None  # called before each claim

    # Claiming

    async def run_once(self) -> int:
        """Claim one batch and put it on its way; returns its size. Raises DatabaseAway."""
        state = self._state
        room = min(state.config.claim_batch, state.config.claimed_max - self._state.held)
        if room <= 0 or not state.holds_claims():
            return 0
        if self._answer_lost:
            await self._claims.call(
                "select maestro.return_claims(%s, %s::bigint[])", state.launcher_id, list(self._claimed)
            )
            self._look_back_at = 0.0
        now = time.monotonic()
        after = self._after if now < self._look_back_at else 0
        self._answer_lost = True
        answer = await self._claims.call(
            "select maestro.claim_launches(%s, %s, %s)", state.launcher_id, room, after
        )  # fmt: skip
        self._answer_lost = False
        if not after:
            self._look_back_at = now + state.config.poll_s
        rows = rows_of(answer["launches"])
        if rows:
            self._after = rows[-1]["launch_id"]
        give_up_at = now + state.confirm_seconds + state.config.launch_deadline_s
        for row in rows:
            launch = Launch(
                row, answer["layers"][row["pk_layer"]], answer["jobs"][row["pk_job"]], now, give_up_at,
                believe_until=give_up_at - row["age_seconds"], in_doubt=row["attempts"] > 1,
            )  # fmt: skip
            self._enqueue(launch)
        return len(rows)

    async def run(self) -> None:
        state = self._state
        backoff = Backoff()
        async with asyncio.TaskGroup() as group:
            finisher = group.create_task(self._finish_all(), name="finish launches")
            await first_of(state.registered, state.draining)
            while not state.draining.is_set():
                state.beat("launch")
                state.wake_launch.clear()
                pause_s = state.config.poll_s
                self.at_boundary()
                try:
                    if self.sendable() >= state.config.claim_batch:
                        # It would only grow old here.
                        await first_of(state.draining, timeout_s=BUSY_S)
                        continue
                    claimed = 0 if state.draining.is_set() else await self.run_once()
                    backoff.reset()
                    if claimed:
                        log.info("claimed", launches=claimed, held=state.held, rss_mb=rss_mb(), peak_mb=_peak_mb())
                        if claimed == state.config.claim_batch:
                            # There is probably more; let what was claimed get under way first.
                            pause_s = 0.0
                except DatabaseAway as error:
                    pause_s = away("launch", error, backoff)
                if pause_s and not state.draining.is_set():
                    await first_of(state.wake_launch, state.draining, timeout_s=pause_s)
                else:
                    await asyncio.sleep(0)
            state.rest("launch")
            await self._drain()
            self._no_more = True
            self._have_results.set()
            await finisher
        for link in (self._claims, self._finishes, self._reports):
            await link.close()

    async def _drain(self) -> None:
        """Let what is under way come to its end, for the grace set; the rest is handed back."""
        tasks = [host.task for host in self._active if host.task]
        hosts = list(self._active)
        if not tasks:
            return
        log.info("draining", held=self._state.held, hosts=len(tasks))
        _, late = await asyncio.wait(tasks, timeout=self._state.config.drain_grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        for host in hosts:
            for launch in [*host.to_send, *host.to_ask]:
                self._done(launch, "retry" if launch.in_doubt else "unsent", "launcher drained")

    # One host after another is independent; one host's bookings are handled in order

    def _enqueue(self, launch: Launch) -> None:
        self._state.held += 1
        self._claimed[launch.row["launch_id"]] += 1
        if launch.row["closed"] and not launch.in_doubt:
            self._done(launch, "refused", launch.row["closed"])
            return
        name = launch.row["host_name"]
        target = self._state.rqds.target(name, launch.row["dial"])
        host = self._hosts.get(name)
        if host is None or host.target != target:
            host = self._hosts[name] = _Host(name, target, name not in self._doubtful)
        (host.to_ask if launch.in_doubt else host.to_send).append(launch)
        if host.task is None:
            host.task = asyncio.create_task(self._serve(host), name=f"host {name}")
            self._active.add(host)

    async def _serve(self, host: _Host) -> None:
        """Work a host's queue off. Ends with the queue empty, or by cancellation with the rest left in it."""
        try:
            while host.to_send or host.to_ask:
                reached = await self._send_all(host)
                if reached and host.to_ask:
                    reached = await self._ask_all(host)
                if reached:
                    host.backoff = None
                elif host.to_send or host.to_ask:
                    await self._wait_for(host)
        except Exception as error:
            # Nobody foresaw it; it must not stop the other hosts. The next claim asks before it sends.
            log.exception("host failed", error, host=host.name)
            for launch in [*host.to_send, *host.to_ask]:
                self._done(launch, "retry", f"launcher failed: {error}")
            host.to_send.clear()
            host.to_ask.clear()
        finally:
            host.task = None
            self._active.discard(host)
            if not (host.to_send or host.to_ask) and self._hosts.get(host.name) is host:
                del self._hosts[host.name]

    async def _wait_for(self, host: _Host) -> None:
        """The host could not be reached: give up what is over its time, wait, then try again. A drain gives up all."""
        host.backoff = host.backoff or Backoff(self._state.config.retry_first_s)
        now = time.monotonic()
        draining = self._state.draining.is_set()
        for launch in [*host.to_send, *host.to_ask]:
            if draining or now >= launch.give_up_at:
                self._give_up(host, launch)
        if host.to_send or host.to_ask:
            await first_of(self._state.draining, timeout_s=host.backoff.next())

    def _give_up(self, host: _Host, launch: Launch) -> None:
        """Leave a launch to the next claim, or undo its booking where the host certainly does not have it."""
        (host.to_ask.remove if launch in host.to_ask else host.to_send.remove)(launch)
        if launch.in_doubt:
            self._done(launch, "retry", launch.words)
        elif self._state.draining.is_set():
            self._done(launch, "unsent", launch.words)
        else:
            self._done(launch, "refused", launch.words, BARRED_UNREACHED_S)

    async def _send_all(self, host: _Host) -> bool:
        """Send what is to be sent, in order. False when the host could not be reached."""
        if not host.to_send:
            return True
        host.called_at = time.monotonic()
        async with self._connecting:
            host.reachable = await self._state.rqds.connect(host.target)
        host.called_at = math.inf
        if not host.reachable:
            self._doubtful.add(host.name)
            for launch in host.to_send:
                launch.words = f"no connection to {host.target}"
            return False
        while host.to_send:
            if not self._state.holds_claims():
                # Another launcher may be at it by now; what it does not take over comes back to someone.
                for launch in host.to_send:
                    self._done(launch, "unsent", "heartbeat late")
                host.to_send.clear()
                return True
            launch = host.to_send.popleft()
            if time.monotonic() - launch.claimed_at > FRESH_S:
                self._done(launch, "unsent", "claimed too long ago")
            elif not await self._send(host, launch):
                return False
        return True

    async def _send(self, host: _Host, launch: Launch) -> bool:
        """Send one launch. False when no answer came; it is then to be asked about."""
        try:
            message = run_frame(launch.row, launch.layer, launch.job, time.time_ns() // 1_000_000)
        except CannotRun as error:
            self._done(launch, "refused", f"cannot be run: {error}")
            return True
        try:
            async with self._doubtful_calls if host.name in self._doubtful else self._calls:
                host.called_at = time.monotonic()
                sent, words = await self._state.rqds.launch(host.name, host.target, message)
        except asyncio.CancelledError:
            launch.in_doubt = True
            host.to_ask.append(launch)
            raise
        self._state.metrics.launch_seconds.observe(time.monotonic() - host.called_at)
        host.called_at = math.inf
        launch.words = words
        match sent:
            case Sent.TAKEN:
                self._done(launch, "launched")
            case Sent.REFUSED:
                # Said of the frame's user it holds on every host; all else is said of the host.
                self._done(launch, "refused", words, 0.0 if "will not run frame as" in words else BARRED_REFUSED_S)
            case Sent.DUPLICATE | Sent.UNSURE:
                launch.in_doubt = launch.sent = True
                host.to_ask.append(launch)
                if sent is Sent.UNSURE:
                    log.warning("launch unanswered", **_fields(host, launch))
                    self._doubtful.add(host.name)
                    return True
        self._doubtful.discard(host.name)
        return True

    async def _ask_all(self, host: _Host) -> bool:
        """Ask about all launches in doubt. False when the host cannot be asked."""
        # Taken out only once answered: a cancellation leaves them to be handed back.
        asked = list(host.to_ask)
        async with self._connecting:
            findings = await inquiry.inquire(
                self._state.rqds, host.name, host.target, [launch.booking for launch in asked],
                self._state.config.confirm_gap_s,
            )  # fmt: skip
        reached = True
        for launch in asked:
            finding = findings[launch.row["pk_proc"]]
            launch.words = finding.words or launch.words
            log.info("launch looked into", verdict=finding.verdict.value, **_fields(host, launch))
            if finding.verdict is Verdict.SILENT:
                reached = False
                continue
            if finding.verdict is Verdict.ENDED and finding.ending is not None:
                report = inquiry.completion(launch.booking, host.name, finding.ending)
                if not await self._report(report):
                    reached = False
                    continue
            host.to_ask.remove(launch)
            match finding.verdict:
                case Verdict.RUNNING | Verdict.ENDED:
                    self._done(launch, "launched")
                case Verdict.OTHER | Verdict.LOST:
                    self._done(launch, "refused", launch.words)
                case Verdict.NEVER | Verdict.GONE:
                    if launch.row["closed"]:
                        self._done(launch, "refused", launch.row["closed"])
                    elif launch.sent and time.monotonic() >= launch.believe_until:
                        self._done(launch, "refused", f"{launch.words}; no answer to its launch", BARRED_UNREACHED_S)
                    else:
                        # The next claim sees whether there still is a booking to be sent.
                        self._done(launch, "absent", launch.words)
        if reached:
            self._doubtful.discard(host.name)
        return reached

    async def _report(self, report: dict[str, object]) -> bool:
        """Hand in a completion that was read from a log. False while the database is away."""
        try:
            await self._reports.call("select maestro.report_completion(%s::jsonb)", json.dumps([report]))
        except DatabaseAway:
            return False
        except Refused as error:
            log.error("completion from a log refused", error=error)
        self._state.metrics.salvaged.inc()
        return True

    def sendable(self) -> int:
        """How many launches wait for nothing but their turn: their hosts are not known to be away, and do answer."""
        slow = time.monotonic() - SLOW_S
        return sum(len(host.to_send) for host in self._active if host.reachable and host.called_at > slow)

    def in_doubt(self) -> int:
        """How many launches wait to be asked about."""
        return sum(len(host.to_ask) for host in self._active)

    # Outcomes

    def _done(self, launch: Launch, outcome: str, words: str = "", barred_s: float = 0.0) -> None:
        """`barred_s`: how long the host gets no other of this size, refused for what the host is or has."""
        self._state.held -= 1
        self._state.launched += outcome not in ("unsent", "absent")
        self._state.metrics.launches.labels(outcome).inc()
        if outcome == "launched" and launch.row["waited"] is not None:
            self._state.metrics.wait_seconds.labels(launch.job["show"]).observe(launch.row["waited"])
        if outcome == "refused":
            log.warning("launch refused", error=words, host=launch.row["host_name"], frame=launch.row["frame_name"],
                        job=launch.job["name"], proc=launch.row["pk_proc"])  # fmt: skip
        self._results.append({
            "launch_id": launch.row["launch_id"], "outcome": outcome, "error": words or None, "barred_s": barred_s,
        })  # fmt: skip
        self._have_results.set()

    async def finish_once(self) -> None:
        """Store the outcomes known so far. Raises DatabaseAway, and keeps them for the next try."""
        # An undo waits for the tick to end; what was launched need not wait with it.
        batch = [result for result in self._results if result["outcome"] != "refused"] or self._results
        batch = batch[:FINISH_BATCH]
        answer = await self._finishes.call(
            "select maestro.finish_launches(%s, %s::jsonb)", self._state.launcher_id, json.dumps(batch)
        )
        stored = {result["launch_id"] for result in batch}
        self._claimed -= Counter(stored)
        self._results = [result for result in self._results if result["launch_id"] not in stored]
        if any(result["outcome"] in ("unsent", "absent") for result in batch):
            self._look_back_at = 0.0
            self._state.wake_launch.set()
        if answer["stale"]:
            log.warning("claims were taken over", stale=answer["stale"])
            self._state.metrics.stale_claims.inc(answer["stale"])

    async def _finish_all(self) -> None:
        """Store outcomes as they come; at the end of a drain, those left, for the grace set."""
        state = self._state
        backoff = Backoff()
        leave_at: float | None = None
        while True:
            await self._have_results.wait()
            self._have_results.clear()
            if not self._no_more:
                await asyncio.sleep(FINISH_GATHER_S)
            while self._results:
                try:
                    await self.finish_once()
                    backoff.reset()
                except DatabaseAway as error:
                    seconds = away("finish", error, backoff)
                    if self._no_more:
                        leave_at = leave_at or time.monotonic() + state.config.drain_grace_s
                        if time.monotonic() >= leave_at:
                            log.warning("outcomes not stored, their claims expire", launches=len(self._results))
                            return
                    await asyncio.sleep(seconds)
            if self._no_more:
                return


def _fields(host: _Host, launch: Launch) -> dict[str, Any]:
    return {
        "host": host.name, "job": launch.job["name"], "frame": launch.row["frame_name"],
        "proc": launch.row["pk_proc"], "attempts": launch.row["attempts"], "said": launch.words,
    }  # fmt: skip


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

"""Duty intake: OpenCue's RqdReportInterface, served to RQDs in Cuebot's place.

RQD sends a completion once and forgets it, so it is answered only when it is durable: its row committed, together with
all that arrived while the rows before it were written, or, while the database is away, on disk (spool.py). Host reports
repeat, so of those that wait only a host's latest is kept, and a lost one is no harm.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import psycopg
from opencue_proto import report_pb2, report_pb2_grpc

from launcher import log, reports
from launcher.db import Backoff, DatabaseAway, Link, Refused, away
from launcher.reports import BadReport
from launcher.spool import Spool
from launcher.state import State, first_of

COMPLETIONS_A_CALL = 1000
HOSTS_A_CALL = 100
# Reports that come this close together are written in one call. RQD waits, so it is short.
GATHER_S = 0.005
STOP_GRACE_S = 5.0

Code = grpc.StatusCode


class NotNow(Exception):
    """The report cannot be taken now; RQD may send it again."""


class Waiting:
    """A report on its way into the database, and who waits for it."""

    __slots__ = ("future", "report")

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: Exception | None = None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class Intake:
    def __init__(self, state: State) -> None:
        self._state = state
        self._completions: list[Waiting] = []
        self._have_completions = asyncio.Event()
        self._completion_link = Link(state.dsn, "completions")
        self._status_link = Link(state.dsn, "status")
        # host name -> its latest report; startups go in before statuses
        self._hosts: dict[str, dict[str, Waiting]] = {"startup": {}, "status": {}}
        self._have_hosts = asyncio.Event()
        self._spool = Spool(state.config.spool)
        self._stopping = asyncio.Event()
        self.port = 0

    # What RQD calls

    async def take_completion(self, report: dict[str, Any]) -> None:
        """Returns when durable. Raises NotNow, or Refused when the database will never take it."""
        if len(self._completions) >= self._state.config.reports_max:
            raise NotNow("too many completions wait for the database")
        waiting = Waiting(report)
        self._completions.append(waiting)
        self._have_completions.set()
        await waiting.future

    async def take_host(self, kind: str, report: dict[str, Any]) -> None:
        """Returns when stored, or when a newer report of the host has taken its place. Raises NotNow or Refused."""
        queue = self._hosts[kind]
        name = report["host"]["name"]
        older = queue.pop(name, None)
        if older is not None:
            older.settle()
        elif len(queue) >= self._state.config.reports_max:
            raise NotNow("too many host reports wait for the database")
        queue[name] = waiting = Waiting(report)
        self._have_hosts.set()
        await waiting.future

    # Completions into the database

    async def completions_once(self) -> None:
        """Write what waits. Everybody who waits is answered, whatever happens."""
        batch = self._completions[:COMPLETIONS_A_CALL]
        del self._completions[: len(batch)]
        try:
            if self._spool.depth:
                await self.replay()
            await self._insert([waiting.report for waiting in batch])
        except (DatabaseAway, psycopg.Error) as error:
            if isinstance(error, psycopg.Error) and _is_data_error(error) and not self._spool.depth:
                await self._one_by_one(batch)
                return
            log.debug("completions to disk", completions=len(batch), error=error)
            await self._to_disk(batch)
        except Refused:
            await self._one_by_one(batch)
        else:
            for waiting in batch:
                waiting.settle()
            self._state.metrics.reports.labels("completion", "stored").inc(len(batch))

    async def _insert(self, batch: list[dict[str, Any]]) -> None:
        if batch:
            await self._completion_link.call("select maestro.report_completion(%s::jsonb)", json.dumps(batch))

    async def _one_by_one(self, batch: list[Waiting]) -> None:
        """One report spoils the batch: find it and refuse it alone."""
        counts = self._state.metrics.reports
        for place, waiting in enumerate(batch):
            try:
                await self._insert([waiting.report])
                waiting.settle()
                counts.labels("completion", "stored").inc()
            except Refused as error:
                waiting.settle(error)
                counts.labels("completion", "refused").inc()
            except (DatabaseAway, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and _is_data_error(error):
                    waiting.settle(Refused("QM001", f"the database refused the report: {_line(error)}"))
                    counts.labels("completion", "refused").inc()
                    continue
                await self._to_disk(batch[place:])
                return

    async def _to_disk(self, batch: list[Waiting]) -> None:
        try:
            await asyncio.to_thread(self._spool.append, [waiting.report for waiting in batch])
        except OSError as error:
            log.error("spool failed", error=error)
            for waiting in batch:
                waiting.settle(NotNow(f"database away, and the spool failed: {error.strerror}"))
            return
        self._state.metrics.reports.labels("completion", "spooled").inc(len(batch))
        for waiting in batch:
            waiting.settle()

    async def replay(self) -> None:
        """Bring what is on disk into the database, oldest first. Raises DatabaseAway, or what nobody foresaw."""
        while self._spool.depth:
            batch, offset = await asyncio.to_thread(self._spool.peek, COMPLETIONS_A_CALL)
            try:
                await self._insert(batch)
            except (Refused, psycopg.DataError, psycopg.IntegrityError):
                for report in batch:
                    try:
                        await self._insert([report])
                    except (Refused, psycopg.DataError, psycopg.IntegrityError) as error:
                        log.error("spooled completion refused, dropped", error=error, report=report)
            await asyncio.to_thread(self._spool.advance, offset)
            log.info("spool replayed", completions=len(batch), left=self._spool.depth)

    async def _run_completions(self) -> None:
        backoff = Backoff()
        while not (self._stopping.is_set() and not self._completions):
            self._state.beat("intake")
            self._state.metrics.spooled.set(self._spool.depth)
            self._state.health["spooled"] = self._spool.depth
            seconds = self._state.config.poll_s
            if self._completions:
                await asyncio.sleep(GATHER_S)
                await self.completions_once()
                continue
            if self._spool.depth and not self._stopping.is_set():
                try:
                    await self.replay()
                    backoff.reset()
                except DatabaseAway as error:
                    seconds = away("intake", error, backoff)
                except psycopg.Error as error:
                    seconds = backoff.next()
                    log.error("spool cannot be replayed", error=error)
            self._have_completions.clear()
            if not self._completions:
                await first_of(self._have_completions, self._stopping, timeout_s=seconds)
        self._state.rest("intake")

    # Host reports into the database

    async def hosts_once(self) -> bool:
        """Write some of the host reports that wait. False when there was none."""
        for kind in ("startup", "status"):
            queue = self._hosts[kind]
            batch = [queue.pop(name) for name in list(queue)[:HOSTS_A_CALL]]
            if not batch:
                continue
            try:
                await self._store(kind, [waiting.report for waiting in batch])
            except DatabaseAway as error:
                for waiting in batch:
                    waiting.settle(NotNow(f"database away: {error}"))
            except (Refused, psycopg.Error) as error:
                log.debug("host reports one by one", reports=len(batch), error=error)
                await self._hosts_one_by_one(kind, batch)
            else:
                for waiting in batch:
                    waiting.settle()
                self._state.metrics.reports.labels(kind, "stored").inc(len(batch))
            return True
        return False

    async def _store(self, kind: str, batch: list[dict[str, Any]]) -> None:
        await self._status_link.call(f"select maestro.report_{kind}(%s::jsonb)", json.dumps(batch))

    async def _hosts_one_by_one(self, kind: str, batch: list[Waiting]) -> None:
        counts = self._state.metrics.reports
        for waiting in batch:
            try:
                await self._store(kind, [waiting.report])
                waiting.settle()
                counts.labels(kind, "stored").inc()
            except Refused as error:
                waiting.settle(error)
                counts.labels(kind, "refused").inc()
            except DatabaseAway as error:
                waiting.settle(NotNow(f"database away: {error}"))
            except psycopg.Error as error:
                log.error("host report failed", host=waiting.report["host"]["name"], error=_line(error))
                waiting.settle(Refused("QM001", f"the database refused the report: {_line(error)}"))
                counts.labels(kind, "refused").inc()

    async def _run_hosts(self) -> None:
        while not self._stopping.is_set():
            self._have_hosts.clear()
            if not await self.hosts_once():
                await first_of(self._have_hosts, self._stopping)
        for queue in self._hosts.values():
            for waiting in queue.values():
                waiting.settle(NotNow("launcher ends"))

    # The server

    async def run(self, listening: asyncio.Event | None = None) -> None:
        state = self._state
        await asyncio.to_thread(self._spool.open)
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", state.config.message_max_bytes),
                ("grpc.keepalive_permit_without_calls", 1),
            ]
        )
        report_pb2_grpc.add_RqdReportInterfaceServicer_to_server(_Servicer(self), server)
        try:
            self.port = server.add_insecure_port(state.config.intake)
            await server.start()
            log.info("intake", address=state.config.intake, port=self.port)
            if listening is not None:
                listening.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_completions(), name="completions")
                group.create_task(self._run_hosts(), name="host reports")
                await state.finished.wait()
                # No new reports; those taken are stored first.
                await server.stop(STOP_GRACE_S)
                self._stopping.set()
        finally:
            await server.stop(0)
            self._spool.close()
            await self._completion_link.close()
            await self._status_link.close()


Handle = Callable[[], Awaitable[None]]


class _Servicer(report_pb2_grpc.RqdReportInterfaceServicer):  # type: ignore[misc]
    """The border to gRPC: messages in, statuses out."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def _answer(self, context: Any, kind: str, take: Handle) -> None:
        try:
            await take()
        except (BadReport, Refused) as error:
            log.warning("report refused", kind=kind, peer=context.peer(), error=error)
            await context.abort(Code.INVALID_ARGUMENT, str(error))
        except NotNow as error:
            await context.abort(Code.UNAVAILABLE, str(error))

    async def ReportRqdStartup(self, request: Any, context: Any) -> Any:
        await self._answer(context, "startup", lambda: self._host("startup", request.boot_report))
        return report_pb2.RqdReportRqdStartupResponse()

    async def ReportStatus(self, request: Any, context: Any) -> Any:
        await self._answer(context, "status", lambda: self._host("status", request.host_report))
        return report_pb2.RqdReportStatusResponse()

    async def ReportRunningFrameCompletion(self, request: Any, context: Any) -> Any:
        await self._answer(context, "completion", lambda: self._completion(request.frame_complete_report))
        return report_pb2.RqdReportRunningFrameCompletionResponse()

    async def _host(self, kind: str, message: Any) -> None:
        await self._intake.take_host(kind, reports.startup(message) if kind == "startup" else reports.status(message))

    async def _completion(self, message: Any) -> None:
        await self._intake.take_completion(reports.completion(message))


def _is_data_error(error: psycopg.Error) -> bool:
    """The data's fault and not the database's: another try would fail as well."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError)


def _line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0]

"""Duty intake: OpenCue's RqdReportInterface, served to RQDs in Cuebot's place.

RQD sends a completion once and forgets it, so it is answered only when it is durable: its row committed, together with
all that arrived while the rows before it were written, or, while the database is away, on disk (spool.py). Host reports
repeat, so of those that wait only a host's latest is kept, and a lost one is no harm.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from google.protobuf.message import DecodeError
from opencue_proto import report_pb2

from db.errors import MaestroError
from launcher import log, reports
from launcher.config import Config, Network, networks
from launcher.db import Backoff, DatabaseAway, Refused, away
from launcher.reports import BadReport
from launcher.spool import Spool
from launcher.state import State, first_of
from launcher.wire import Call, CallError, Code, Server

COMPLETIONS_A_CALL = 1000
HOSTS_A_CALL = 100
# Reports that come this close together are written in one call. RQD waits, so it is short.
GATHER_S = 0.005
STOP_GRACE_S = 5.0
_SERVICE = "/report.RqdReportInterface/"


class NotNow(Exception):
    """The report cannot be taken now; RQD may send it again."""


class Waiting:
    """A report on its way into the database, and who waits for it."""

    __slots__ = ("future", "report", "size")

    def __init__(self, report: dict[str, Any], size: int) -> None:
        self.report = report
        self.size = size
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
        self._completion_link = state.link("completions")
        self._status_link = state.link("status")
        # host name -> its latest report; startups go in before statuses
        self._hosts: dict[str, dict[str, Waiting]] = {"startup": {}, "status": {}}
        self._have_hosts = asyncio.Event()
        self._bytes = 0  # of the reports that wait
        self._spool = Spool(state.config.spool)
        self._stopping = asyncio.Event()
        self.config = state.config
        self.port = 0

    # What RQD calls

    def take_completion(self, report: dict[str, Any], size: int) -> asyncio.Future[None]:
        """Done when durable; fails with NotNow, or Refused when the database will never take it. `size` in bytes."""
        if len(self._completions) >= self._state.config.reports_max or self._is_full(size):
            raise NotNow("too many completions wait for the database")
        waiting = Waiting(report, size)
        self._completions.append(waiting)
        self._have_completions.set()
        return self._counted(waiting)

    def _is_full(self, size: int) -> bool:
        """Whether reports of this size more would take more room than they may. One alone always has room."""
        return self._bytes > 0 and self._bytes + size > self._state.config.reports_max_mb * 1024 * 1024

    def _counted(self, waiting: Waiting) -> asyncio.Future[None]:
        self._bytes += waiting.size
        waiting.future.add_done_callback(partial(self._gone, waiting.size))
        return waiting.future

    def _gone(self, size: int, future: asyncio.Future[None]) -> None:
        self._bytes -= size

    def take_host(self, kind: str, report: dict[str, Any], size: int) -> asyncio.Future[None]:
        """Done when stored, or when a newer report of the host has taken its place; fails with NotNow or Refused."""
        queue = self._hosts[kind]
        name = report["host"]["name"]
        older = queue.pop(name, None)
        if older is not None:
            older.settle()
        elif len(queue) >= self._state.config.reports_max or self._is_full(size):
            raise NotNow("too many host reports wait for the database")
        queue[name] = waiting = Waiting(report, size)
        self._have_hosts.set()
        return self._counted(waiting)

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
        server = Server(_Service(self).take, state.config.message_max_bytes)
        try:
            await _listen(server, state.config)
            self.port = server.port
            log.info("intake", address=state.config.intake, port=self.port, tls=bool(state.config.intake_cert))
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
            await server.stop()
            self._spool.close()
            await self._completion_link.close()
            await self._status_link.close()


async def _listen(server: Server, config: Config) -> None:
    """Open the port, with TLS where a certificate is given. Raises MaestroError for what cannot be used."""
    context = _tls(config) if config.intake_cert else None
    try:
        await server.start(config.intake, context)
    except OSError as error:
        raise MaestroError(f"intake cannot listen at {config.intake}: {error}") from None


def _tls(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for path in filter(None, (config.intake_key, config.intake_cert, config.intake_client_ca)):
            Path(path).read_bytes()
        context.load_cert_chain(config.intake_cert, config.intake_key, password="")
        if config.intake_client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(config.intake_client_ca)
    except ssl.SSLError as error:
        raise MaestroError(
            f"intake cannot serve TLS at {config.intake} with {config.intake_cert} and {config.intake_key}: {error}"
        ) from None
    except OSError as error:
        raise MaestroError(f"cannot read {error.filename}: {error.strerror}") from None
    return context


def is_welcome(address: str, allowed: list[Network]) -> bool:
    """Whether a caller's address lies in an allowed network; none named allows all."""
    if not allowed:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return any(found in network for network in allowed)


class _Service:
    """The border to gRPC: messages in, statuses out."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._allowed = networks(intake.config.intake_networks)
        self._methods = {
            _SERVICE + "ReportRqdStartup": ("startup", self._startup),
            _SERVICE + "ReportStatus": ("status", self._status),
            _SERVICE + "ReportRunningFrameCompletion": ("completion", self._completion),
        }

    def take(self, call: Call) -> None:
        """A report from RQD; answered once it is stored."""
        if call.path not in self._methods:
            raise CallError(Code.UNIMPLEMENTED, f"no method {call.path}")
        kind, take = self._methods[call.path]
        if not is_welcome(call.address, self._allowed):
            log.warning("report from outside the networks allowed", kind=kind, peer=call.address)
            raise CallError(Code.PERMISSION_DENIED, "this launcher takes no reports from your network")
        try:
            take(call.message).add_done_callback(partial(self._answer, call, kind))
        except (BadReport, DecodeError) as error:
            call.reply(self._refusal(call, kind, error))
        except NotNow as error:
            call.reply(CallError(Code.UNAVAILABLE, str(error)))

    def _answer(self, call: Call, kind: str, stored: asyncio.Future[None]) -> None:
        match stored.exception():
            case None:
                call.reply(b"")  # each answer is a message without fields
            case Refused() as error:
                call.reply(self._refusal(call, kind, error))
            case error:
                call.reply(CallError(Code.UNAVAILABLE, str(error)))

    @staticmethod
    def _refusal(call: Call, kind: str, error: Exception) -> CallError:
        log.warning("report refused", kind=kind, peer=call.address, error=error)
        return CallError(Code.INVALID_ARGUMENT, str(error))

    def _startup(self, data: bytes) -> asyncio.Future[None]:
        message = report_pb2.RqdReportRqdStartupRequest.FromString(data)
        return self._intake.take_host("startup", reports.startup(message.boot_report), len(data))

    def _status(self, data: bytes) -> asyncio.Future[None]:
        message = report_pb2.RqdReportStatusRequest.FromString(data)
        return self._intake.take_host("status", reports.status(message.host_report), len(data))

    def _completion(self, data: bytes) -> asyncio.Future[None]:
        message = report_pb2.RqdReportRunningFrameCompletionRequest.FromString(data)
        return self._intake.take_completion(reports.completion(message.frame_complete_report), len(data))


def _is_data_error(error: psycopg.Error) -> bool:
    """The data's fault and not the database's: another try would fail as well."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError)


def _line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0]

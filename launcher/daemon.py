"""The launcher process: its duties in one task group, and the order in which they end.

A drain ends claiming first; launches in flight finish and their outcomes are stored; then intake takes no more reports
and stores those it took; the heartbeat signs off last. A duty that dies takes the others with it, and the process ends
non-zero: what it held is taken over when its heartbeat has gone cold.
"""

from __future__ import annotations

import asyncio

from db.errors import MaestroError
from launcher import log
from launcher.config import Config, load_dials
from launcher.early import Drain
from launcher.early import drain as process_drain
from launcher.heartbeat import Heartbeat
from launcher.intake import Intake
from launcher.launch import LaunchDuty
from launcher.listen import Listen
from launcher.metrics import Metrics
from launcher.metrics_server import MetricsServer
from launcher.orders import Orders
from launcher.recycle import Recycle, rss_mb
from launcher.rqd import Rqds
from launcher.state import State
from launcher.verify import Verify
from launcher.watchdog import Watchdog, notify


class Daemon:
    """One launcher; `run` returns after a drain. Tests run several in one process."""

    def __init__(self, config: Config, dsn: str, drain: Drain | None = None) -> None:
        self.drain = drain or Drain()
        rqds = Rqds(
            port=config.rqd_port, dials=load_dials(config.dials), deadline_s=config.launch_deadline_s,
            channels_max=config.channels_max, channel_idle_s=config.channel_idle_s,
        )  # fmt: skip
        self.state = State(config=config, dsn=dsn, rqds=rqds, metrics=Metrics())
        self.launch = LaunchDuty(self.state)
        self.intake = Intake(self.state) if config.intake else None
        self.ready = asyncio.Event()  # reports are taken

    async def run(self) -> None:
        state, config = self.state, self.state.config
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._on_drain)

        self.drain.listen(wake)
        watchdog = Watchdog(state)
        recycle = Recycle(state, self.drain)
        self.launch.at_boundary = recycle.run_once
        state.metrics.held.set_function(lambda: float(self.state.held))
        try:
            async with asyncio.TaskGroup() as group:
                last = [group.create_task(Heartbeat(state).run(), name="heartbeat")]
                if self.intake:
                    last.append(group.create_task(self.intake.run(self.ready), name="intake"))
                if config.serves_metrics:
                    group.create_task(MetricsServer(state).run(), name="metrics")
                first = [
                    group.create_task(self.launch.run(), name="launch"),
                    group.create_task(Orders(state).run(), name="orders"),
                    group.create_task(Listen(state).run(), name="listen"),
                    group.create_task(recycle.run(), name="recycle"),
                ]
                if self.intake and config.verify_s:
                    first.append(group.create_task(Verify(state).run(), name="verify"))
                watchdog.start()
                notify("READY=1")
                await asyncio.gather(*first)
                state.finished.set()
                await asyncio.gather(*last)
        finally:
            watchdog.stop()
            await state.close()

    def _on_drain(self) -> None:
        if not self.state.draining.is_set():
            log.info("drain requested", by=self.drain.reason, held=self.state.held, rss_mb=rss_mb())
            notify("STOPPING=1")
            self.state.drain()


def main(config: Config, dsn: str) -> None:
    """Run until drained. Raises what made a duty die."""
    log.setup(config.log_level)
    if process_drain.requested:
        log.info("drained before start", by=process_drain.reason)
        return
    log.info("launcher starts", intake=config.intake, rss_mb=rss_mb())
    try:
        asyncio.run(Daemon(config, dsn, process_drain).run())
    except ExceptionGroup as group:
        # What the operator can put right is said in one line.
        for error in group.exceptions:
            if isinstance(error, MaestroError):
                raise error from None
        raise
    log.info("launcher ends", by=process_drain.reason, rss_mb=rss_mb())

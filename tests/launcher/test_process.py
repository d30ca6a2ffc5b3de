"""The launcher as a supervisor sees it: signals, exit statuses, recycling, the watchdog."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.cluster import ROOT
from launcher.daemon import Daemon
from launcher.watchdog import EXIT_STATUS, Watchdog, stuck
from sim.fake_rqd import Fault
from tests.launcher.farm import Farm, process

LEAVES_S = 10.0


async def _until_logged(child: asyncio.subprocess.Process, words: str) -> str:
    """Read the log up to a line that holds the words."""
    assert child.stderr
    seen = ""
    async with asyncio.timeout(20):
        while words not in seen:
            line = await child.stderr.readline()
            assert line, f"ended without saying {words!r}: {seen}"
            seen += line.decode()
    return seen


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
async def test_an_idle_launcher_leaves_at_once_with_status_0(farm: Farm, number: signal.Signals) -> None:
    await farm.start()
    async with process(farm, poll_s=60.0, heartbeat_s=1.0) as child:
        await _until_logged(child, "listening")
        began = time.monotonic()
        child.send_signal(number)
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0
        assert time.monotonic() - began < 5
    assert farm.one("select count(*) from maestro.launcher") == 0


@pytest.mark.parametrize("after_s", [0.3, 0.6, 1.0])
async def test_a_signal_during_start_up_is_kept(farm: Farm, after_s: float) -> None:
    """Sent at moments before, while and after the rest is imported; the handlers come with the first import."""
    await farm.start()
    farm.book(1)
    async with process(farm) as child:
        await _until_handled(child)
        await asyncio.sleep(after_s - 0.3)
        child.send_signal(signal.SIGUSR1)
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.4])
async def test_the_one_command_keeps_a_signal_from_its_first_lines_on(farm: Farm, after_s: float) -> None:
    await farm.start()
    farm.book(1)
    async with process(farm, program=str(ROOT / "maestro")) as child:
        await _until_handled(child)
        await asyncio.sleep(after_s)
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0


async def _until_handled(child: asyncio.subprocess.Process) -> None:
    """Wait until the process takes signals: SIGUSR1 is caught or blocked, says the kernel."""
    bit = 1 << (signal.SIGUSR1 - 1)
    async with asyncio.timeout(10):
        while True:
            with open(f"/proc/{child.pid}/status") as status:  # noqa: ASYNC230 - a file of the kernel's, never waits
                masks = re.findall(r"^Sig(?:Cgt|Blk):\s*([0-9a-f]+)$", status.read(), re.MULTILINE)
            if any(int(mask, 16) & bit for mask in masks):
                return
            await asyncio.sleep(0.001)


async def test_results_of_calls_in_flight_are_stored_before_the_end(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.LOSE_ANSWER
    farm.book(1)
    async with process(farm, launch_deadline_s=2.0) as child:
        await farm.fake.until(lambda: len(farm.fake.launches) == 1)
        child.send_signal(signal.SIGUSR1)
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0
    assert farm.open_launches() == 0
    assert farm.states() == {"RUNNING": 1}


async def test_a_launcher_recycles_itself_after_its_launches(farm: Farm) -> None:
    await farm.start()
    farm.book(5)
    async with process(farm, recycle_max_launches=5) as child:
        log = await _until_logged(child, "launcher ends")
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0
    assert "recycle_max_launches 5 reached" in log
    assert "rss_mb=" in log
    assert farm.open_launches() == 0


async def test_a_size_cap_below_the_size_at_start_is_complained_about_and_the_launcher_works(farm: Farm) -> None:
    await farm.start()
    farm.book(3)
    async with process(farm, recycle_max_rss_mb=1) as child:
        await _until_logged(child, "recycle_max_rss_mb is too low")
        await farm.until(lambda: farm.open_launches() == 0)
        assert child.returncode is None


async def test_a_size_cap_that_is_reached_recycles(farm: Farm) -> None:
    await farm.start()
    async with process(farm, recycle_max_rss_mb=1, recycle_min_uptime_s=0.0) as child:
        log = await _until_logged(child, "launcher ends")
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 0
    assert "recycle_max_rss_mb 1 reached" in log


@pytest.mark.parametrize("field", ["recycle_max_rss_mb", "recycle_max_launches"])
async def test_a_negative_cap_is_refused_at_start(farm: Farm, field: str) -> None:
    changes: dict[str, Any] = {field: -1}
    async with process(farm, **changes) as child:
        _, log = await asyncio.wait_for(child.communicate(), 20)
    assert child.returncode == 1
    assert field in log.decode()


async def test_what_the_operator_can_put_right_is_said_in_one_line(farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with process(farm, intake="127.0.0.1:0", spool=str(tmp_path / "file" / "spool"), log_level="error") as child:
        _, log = await asyncio.wait_for(child.communicate(), 20)
    assert child.returncode == 1
    assert "cannot use the spool" in log.decode()
    assert "Traceback" not in log.decode()


FROZEN = """
import sys, time
from dataclasses import replace
from launcher import daemon
from launcher.config import load
from launcher.launch import LaunchDuty

async def freezes(self):
    time.sleep(3600)

LaunchDuty.run_once = freezes
daemon.main(load(), sys.argv[1])
"""


async def test_a_frozen_loop_is_ended_by_the_watchdog(farm: Farm) -> None:
    """The process lives and does nothing; another launcher does its work meanwhile."""
    await farm.start()
    async with process(farm, "-c", FROZEN, farm.dsn, watchdog_s=2.0) as child:
        log = await _until_logged(child, "Current thread")
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == EXIT_STATUS
    assert "no progress" in log


async def test_a_duty_that_dies_ends_the_process_with_an_error(farm: Farm) -> None:
    await farm.start()
    dies = FROZEN.replace("time.sleep(3600)", "raise RuntimeError('nobody foresaw this')")
    async with process(farm, "-c", dies, farm.dsn) as child:
        await _until_logged(child, "nobody foresaw this")
        assert await asyncio.wait_for(child.wait(), LEAVES_S) == 1


def test_the_duty_longest_without_progress_is_named() -> None:
    beats = {"launch": 100.0, "heartbeat": 90.0, "intake": 95.0}
    assert stuck(beats, now=110.0, limit_s=12.0) == "heartbeat"
    assert stuck(beats, now=110.0, limit_s=20.0) is None
    assert stuck(beats, now=110.1, limit_s=20.0) == "heartbeat"


async def test_a_process_that_stood_still_as_a_whole_gives_its_duties_their_time_again(farm: Farm) -> None:
    state = Daemon(replace(farm.config, watchdog_s=20.0), farm.dsn).state
    watchdog = Watchdog(state)
    start = time.monotonic()
    state.beats = {"launch": start}
    assert watchdog.look(start + 1) is None
    assert watchdog.look(start + 3600) is None  # it was suspended, and nothing can have beaten
    for second in range(1, 20):
        assert watchdog.look(start + 3600 + second) is None
    assert watchdog.look(start + 3621) == "launch"

"""The launch duty: every booking reaches its host once, or is undone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import Any

import pytest

from launcher.db import DatabaseAway, Link
from launcher.state import State
from sim.fake_rqd import Exit, FakeRqd, Fault
from tests.launcher.farm import Farm, process


async def test_bookings_reach_their_hosts_and_their_rows_go(farm: Farm) -> None:
    await farm.start(hosts=3)
    farm.book(20)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    procs = farm.db.execute(
        "select h.str_name, p.pk_frame, p.pk_proc from proc p join host h using (pk_host) order by 3"
    ).fetchall()
    assert sorted(farm.fake.launches, key=lambda launch: launch[2]) == procs
    assert farm.states() == {"RUNNING": 20}
    farm.check()


async def test_rqd_is_told_what_cuebot_would_tell(farm: Farm) -> None:
    await farm.start()
    farm.book(1, cmd="render #ZFRAME# #FRAME# #LAYER#", env={"A": "1"})
    async with farm.launcher():
        await farm.fake.until(lambda: len(farm.fake.launches) == 1)
    frame = next(iter(farm.fake.hosts["h0"].running.values()))
    assert frame.command == "render 0001 0001-comp comp"
    assert frame.num_cores == 100
    assert frame.environment["CUE_FRAME"] == "0001-comp"
    assert frame.environment["MAESTRO_PROC"] == frame.resource_id
    assert frame.log_dir.endswith(frame.job_id)
    assert not frame.HasField("uid")
    assert (frame.soft_memory_limit, frame.hard_memory_limit) == (262144 * 16 // 10, 262144 * 2)


async def test_a_tick_that_comes_later_wakes_the_launcher(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher(poll_s=60.0) as daemon:
        await farm.until(lambda: daemon.state.health.get("listen"))
        farm.book(3)
        await farm.until(lambda: farm.open_launches() == 0, timeout_s=10)
    assert len(farm.fake.launches) == 3


async def test_claims_whose_answer_was_lost_are_launched_all_the_same(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server dies with a claim stored (and replicated) and not yet answered."""
    lost = []
    call = Link.call

    async def cut(self: Link, sql: str, *arguments: Any) -> Any:
        answer = await call(self, sql, *arguments)
        if not lost and "claim_launches" in sql and answer["launches"]["launch_id"]:
            lost.extend(answer["launches"]["launch_id"])
            raise DatabaseAway("the answer was lost")
        return answer

    monkeypatch.setattr(Link, "call", cut)
    await farm.start(hosts=2)
    farm.book(5)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert lost
    assert len(farm.fake.launches) == len({frame for _, frame, _ in farm.fake.launches}) == 5
    assert farm.states() == {"RUNNING": 5}
    farm.check()


async def test_already_running_for_our_own_booking_is_success(farm: Farm) -> None:
    await farm.start()
    farm.book(1)
    await _start_by_hand(farm, resource_id=farm.one("select pk_proc from proc"))
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.states() == {"RUNNING": 1}
    assert len(farm.fake.launches) == 1
    assert not farm.fake.kills


async def test_already_running_for_another_booking_is_a_refusal(farm: Farm) -> None:
    await farm.start()
    farm.book(1)
    await _start_by_hand(farm, resource_id="somebody-else")
    async with farm.launcher():
        await farm.until(lambda: farm.one("select state from maestro.launch") == "refused")
    assert farm.states() == {"WAITING": 1}
    assert "somebody-else" in farm.one("select error from maestro.launch")
    farm.check()


async def test_a_refusal_unbooks_once_and_spends_no_retry(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.REFUSE
    farm.book(4)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    frames = farm.db.execute("select str_state, int_exit_status, int_retries, int_version from frame").fetchall()
    version = frames[0][3]
    assert frames == [("WAITING", 299, 0, version)] * 4
    assert farm.one("select count(*) from proc") == 0
    assert "insufficient idle cores" in farm.one("select error from maestro.launch limit 1")
    farm.check()
    farm.fake.host("h0").fault = Fault.NONE
    assert farm.tick()["committed"] == 0
    farm.report_startup("h0")
    assert farm.tick()["committed"] == 4
    assert farm.one("select max(int_retries) from frame") == 0


async def test_a_frame_that_no_host_would_run_bars_no_host(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.REFUSE
    farm.fake.refusal = "Not launching, will not run frame as uid=0"
    farm.book(1)
    async with farm.launcher():
        await farm.until(lambda: farm.one("select state from maestro.launch") == "refused")
    assert farm.one("select count(*) from maestro.host_refusal") == 0


async def test_a_lost_answer_is_looked_into_before_the_booking_is_dropped(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.LOSE_ANSWER
    farm.book(2)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.states() == {"RUNNING": 2}
    assert len(farm.fake.launches) == 2


async def test_a_host_that_hangs_gets_its_launch_once_it_answers(farm: Farm) -> None:
    await farm.start()
    farm.set("launch_confirm_seconds", 60)
    host = farm.fake.host("h0")
    host.fault = Fault.HANG
    farm.book(1)
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.health.get("database") and daemon.launch.in_doubt() == 1)
        assert farm.states() == {"RUNNING": 1}
        host.fault = Fault.NONE
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(farm.fake.launches) == 1
    assert farm.states() == {"RUNNING": 1}


async def test_a_host_that_cannot_be_reached_loses_its_booking_unsent(farm: Farm) -> None:
    await farm.start(hosts=0)
    farm.add_host("gone", target="127.0.0.1:1")
    farm.book(3)
    async with farm.launcher():
        await farm.until(lambda: farm.states() == {"WAITING": 3})
    assert "no connection" in farm.one("select error from maestro.launch limit 1")
    farm.check()


async def test_one_dead_host_delays_no_other(farm: Farm) -> None:
    await farm.start(hosts=4)
    farm.set("launch_confirm_seconds", 600)
    farm.fake.host("h0").fault = Fault.HANG
    # An address that swallows packets: connecting takes its whole deadline.
    farm.add_host("void", target="192.0.2.1:8444")
    farm.book(5 * 8)
    began = time.monotonic()
    async with farm.launcher(launch_deadline_s=20.0, launch_concurrency=2, drain_grace_s=0.5):
        await farm.fake.until(lambda: len(farm.fake.launches) == 3 * 8, timeout_s=10)
        assert time.monotonic() - began < 10
        await farm.until(lambda: farm.open_launches() == 2 * 8)
    assert set(Counter(host for host, _, _ in farm.fake.launches)) == {"h1", "h2", "h3"}


async def test_no_more_is_claimed_than_can_soon_be_sent(farm: Farm) -> None:
    """What waits in the outbox can still be recalled; what waits in a launcher grows old."""
    await farm.start(hosts=4, cores=50)
    farm.book(200)
    most = 0

    def slow(frame: Any) -> float | None:
        nonlocal most
        most = max(most, daemon.launch.sendable())
        return None

    farm.fake._run_seconds = slow
    async with farm.launcher(claim_batch=10, launch_concurrency=1) as daemon:
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(set(farm.fake.launches)) == len(farm.fake.launches) == 200
    assert 0 < most <= 20


async def test_two_launchers_share_the_work_and_launch_nothing_twice(farm: Farm) -> None:
    await farm.start(hosts=10, cores=20)
    async with (
        farm.launcher(claim_batch=10, claimed_max=10) as one,
        farm.launcher(claim_batch=10, claimed_max=10) as two,
    ):
        await farm.until(lambda: one.state.health.get("listen") and two.state.health.get("listen"))
        farm.book(200)
        await farm.until(lambda: farm.open_launches() == 0)
        assert one.state.launched > 0
        assert two.state.launched > 0
    assert len(farm.fake.launches) == 200
    assert len(set(farm.fake.launches)) == 200


async def test_a_launcher_killed_between_claim_and_answer_loses_and_doubles_nothing(farm: Farm) -> None:
    await farm.start(hosts=2)
    farm.fake.host("h0").fault = Fault.LOSE_ANSWER
    farm.fake.host("h1").fault = Fault.HANG
    farm.book(16)
    async with process(farm, launch_deadline_s=60.0) as child:
        # One frame of h0 runs and its launcher does not know; the others of h0 and all of h1 are claimed, unsent.
        await farm.fake.until(lambda: len(farm.fake.launches) == 1)
        await farm.until(lambda: farm.one("select count(*) from maestro.launch where state = 'claimed'") == 16)
        child.send_signal(signal.SIGKILL)
    for host in farm.fake.hosts.values():
        host.fault = Fault.NONE
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.states() == {"RUNNING": 16}
    assert len(set(farm.fake.launches)) == len(farm.fake.launches) == 16
    farm.check()


async def test_a_slow_call_under_a_living_launcher_keeps_its_claim(farm: Farm) -> None:
    await farm.start()
    farm.set("launch_claim_seconds", 2)
    farm.fake.host("h0").fault = Fault.HANG
    farm.book(1)
    slow_calls = {"launch_deadline_s": 30.0, "drain_grace_s": 0.2}
    async with farm.launcher(**slow_calls) as slow, farm.launcher(**slow_calls) as other:
        await farm.until(lambda: slow.state.held + other.state.held == 1)
        holder = farm.one("select claimed_by from maestro.launch")
        await farm.until(lambda: farm.one("select now() - claimed_at > '5 s' from maestro.launch"))
        assert farm.one("select claimed_by from maestro.launch") == holder
        assert farm.one("select attempts from maestro.launch") == 1


async def test_a_launch_whose_booking_is_gone_is_not_sent(farm: Farm) -> None:
    await farm.start()
    farm.book(3)
    farm.one("select maestro.unbook(array(select pk_proc from proc), 299)")
    async with farm.launcher():
        await farm.until(lambda: farm.one("select count(*) from maestro.launch") == 0)
    assert not farm.fake.launches


async def test_a_booking_that_goes_while_its_launch_is_in_doubt_is_not_sent_again(farm: Farm) -> None:
    await farm.start()
    farm.set("launch_confirm_seconds", 60)
    host = farm.fake.host("h0")
    host.fault = Fault.HANG
    farm.book(1)
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.launch.in_doubt() == 1)
        farm.one("select maestro.unbook(array(select pk_proc from proc), 299)")
        host.fault = Fault.NONE
        await farm.until(lambda: farm.one("select count(*) from maestro.launch") == 0)
    assert not farm.fake.launches
    farm.check()


async def test_a_launch_that_waited_long_for_its_host_is_claimed_anew_before_it_is_sent(
    farm: Farm, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.launch.FRESH_S", 0.5)
    await farm.start(hosts=0)
    farm.set("launch_confirm_seconds", 60)
    farm.add_host("late", target=f"127.0.0.1:{unused_tcp_port}")
    farm.book(2)
    late = FakeRqd()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.held == 2)
        farm.one("select maestro.unbook(array(select min(pk_proc) from proc), 299)")
        await asyncio.sleep(0.6)  # what was claimed is old by now
        await late.start(f"127.0.0.1:{unused_tcp_port}")
        await farm.until(lambda: farm.open_launches() == 0)
    await late.stop()
    assert [proc for _, _, proc in late.launches] == [farm.one("select pk_proc from proc")]
    assert farm.states() == {"RUNNING": 1, "WAITING": 1}
    farm.check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("update host set str_lock_state = 'NIMBY_LOCKED'", "the host is NIMBY_LOCKED"),
        ("update host_stat set str_state = 'REBOOT_WHEN_IDLE'", "the host is REBOOT_WHEN_IDLE"),
    ],
)
async def test_a_host_that_closed_between_booking_and_launch_gets_no_launch(farm: Farm, change: str, said: str) -> None:
    await farm.start()
    farm.book(2)
    farm.db.execute(change)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert not farm.fake.launches
    assert farm.db.execute("select str_state, int_retries from frame").fetchall() == [("WAITING", 0)] * 2
    assert farm.one("select array_agg(distinct error) from maestro.launch") == [said]
    farm.check()


async def test_a_closed_host_keeps_what_it_runs_already(farm: Farm) -> None:
    await farm.start()
    farm.book(1)
    await _start_by_hand(farm, resource_id=farm.one("select pk_proc from proc"))
    farm.db.execute("update maestro.launch set attempts = 1")
    farm.db.execute("update host set str_lock_state = 'LOCKED'")
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.states() == {"RUNNING": 1}


async def test_a_host_that_answers_no_launch_is_believed_for_a_while_only(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.IGNORE_LAUNCHES
    farm.book(1)
    async with farm.launcher():
        await farm.until(lambda: farm.one("select state from maestro.launch") == "refused")
    assert "no answer to its launch" in farm.one("select error from maestro.launch")
    assert farm.states() == {"WAITING": 1}
    farm.check()


async def test_a_launcher_whose_heartbeat_is_late_sends_nothing(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.registered.is_set())
        state: State = daemon.state
        state.heard_at -= 60
        assert not state.holds_claims()
        state.heard_at = time.monotonic()
        assert state.holds_claims()


async def test_a_drain_finishes_what_is_in_flight_and_claims_nothing_more(farm: Farm) -> None:
    await farm.start()
    host = farm.fake.host("h0")
    host.fault = Fault.HANG
    farm.book(1)
    async with farm.launcher(launch_deadline_s=20.0, drain_grace_s=20.0) as daemon:
        await farm.until(lambda: daemon.state.held == 1)
        daemon.drain.request("test")
        await asyncio.wait_for(daemon.state.draining.wait(), 5)
        farm.submit(2, name="later")
        farm.tick()
        host.fault = Fault.NONE
        # The call that hangs runs out of time; then the host is asked, and answers.
    assert farm.one("select count(*) from maestro.launch where state = 'ready'") >= 2
    assert farm.one("select count(*) from maestro.launcher") == 0


async def test_a_drain_hands_back_what_cannot_be_finished(farm: Farm) -> None:
    await farm.start()
    farm.fake.host("h0").fault = Fault.HANG
    farm.book(4)
    async with farm.launcher(launch_deadline_s=60.0, drain_grace_s=0.2) as daemon:
        await farm.until(lambda: daemon.state.held == 4)
    rows = farm.db.execute("select state, attempts from maestro.launch order by attempts desc").fetchall()
    # The one that was sent is asked about by the next launcher; the others were never sent.
    assert rows == [("ready", 1), ("ready", 0), ("ready", 0), ("ready", 0)]
    farm.fake.host("h0").fault = Fault.NONE
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(farm.fake.launches) == 4


async def test_an_end_read_from_the_log_counts_as_launched(farm: Farm, tmp_path: Any) -> None:
    """The launcher died after the launch, the frame ended unreported: it is not run again."""
    from tests.launcher.test_salvage import write_log

    await farm.start()
    farm.set("log_root", tmp_path / "logs")
    farm.book(1)
    log: tuple[str, str, str, str] | None = farm.db.execute(
        "select j.str_log_dir, j.str_name, f.str_name, p.pk_proc from frame f join job j using (pk_job)"
        " join proc p using (pk_frame)"
    ).fetchone()
    assert log is not None
    write_log(*log, ending=Exit(status=0))
    farm.db.execute("update maestro.launch set attempts = 1")
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.tick()["drained"] == 1
    assert farm.states() == {"SUCCEEDED": 1}
    assert not farm.fake.launches
    farm.check()


async def _start_by_hand(farm: Farm, resource_id: str) -> None:
    """Put the booked frame onto its host under the given booking."""
    from opencue_proto import rqd_pb2

    frame_id = farm.one("select pk_frame from proc")
    frame = rqd_pb2.RunFrame(resource_id=resource_id, frame_id=frame_id, num_cores=100)
    farm.fake.begin(farm.fake.host("h0"), frame)

"""The verify duty: ends that nobody reported are found, and nothing that runs is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.verify import Verify
from sim.fake_rqd import Exit, Fault
from tests.launcher.farm import Farm
from tests.launcher.test_salvage import write_log

VERIFYING = {"intake": "127.0.0.1:0"}


async def _launch(farm: Farm, frames: int, logs: Path | None = None) -> None:
    """Book and launch, by a launcher that then ends; nothing has been reported since long ago."""
    if logs is not None:
        farm.set("log_root", logs)
    farm.book(frames)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    farm.db.execute("update proc set ts_ping = now() - interval '1 hour'")


def _logs(farm: Farm) -> list[tuple[str, str, str, str]]:
    return farm.db.execute(
        "select j.str_log_dir, j.str_name, f.str_name, p.pk_proc from frame f join job j using (pk_job)"
        " join proc p using (pk_frame) order by 3"
    ).fetchall()


@pytest.mark.parametrize(("ending", "state"), [(Exit(status=0), "SUCCEEDED"), (Exit(status=1, signal=9), "WAITING")])
async def test_an_end_that_nobody_heard_is_read_from_the_log(
    farm: Farm, tmp_path: Path, ending: Exit, state: str
) -> None:
    await farm.start()
    await _launch(farm, 1, tmp_path / "logs")
    write_log(*_logs(farm)[0], ending=ending)
    farm.fake.reports = False
    await farm.fake.finish("h0", farm.fake.launches[0][1], ending)
    async with farm.launcher(**VERIFYING):
        await farm.until(lambda: farm.one("select count(*) from maestro.completion") == 1)
    assert farm.one("select maestro.drain(now())")["drained"] == 1
    assert farm.db.execute("select str_state, int_exit_status from frame").fetchone() == (state, ending.status)
    assert len(farm.fake.launches) == 1
    farm.check()


async def test_frames_that_a_restarted_rqd_forgot_wait_again(farm: Farm, tmp_path: Path) -> None:
    await farm.start()
    await _launch(farm, 3, tmp_path / "logs")
    for log in _logs(farm):
        write_log(*log)
    farm.fake.forget("h0")
    async with farm.launcher(**VERIFYING):
        await farm.until(lambda: farm.states() == {"WAITING": 3})
    assert farm.one("select max(int_retries) from frame") == 0
    farm.check()


async def test_what_the_host_still_runs_is_confirmed_and_left_alone(farm: Farm) -> None:
    await farm.start()
    await _launch(farm, 3)
    async with farm.launcher(**VERIFYING):
        await farm.until(lambda: farm.one("select min(ts_ping) > now() - interval '1 minute' from proc"))
    assert farm.states() == {"RUNNING": 3}
    assert not farm.fake.kills


async def test_many_bookings_of_silent_hosts_do_not_hold_up_one_that_can_be_asked(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.verify.BATCH", 40)
    await farm.start(hosts=10, cores=16)
    await _launch(farm, 160)
    for number in range(1, 10):
        farm.fake.host(f"h{number}").fault = Fault.DEAD
    lost = farm.one("select count(*) from proc join host using (pk_host) where str_name = 'h0'")
    # The one that can be asked is the last in line.
    farm.db.execute("update proc set ts_ping = now() - interval '1 minute' where pk_host ="
                    " (select pk_host from host where str_name = 'h0')")  # fmt: skip
    farm.fake.forget("h0")
    async with farm.launcher(**VERIFYING):
        await farm.until(lambda: farm.states().get("WAITING") == lost)
    assert farm.states() == {"WAITING": lost, "RUNNING": 160 - lost}
    farm.check()


async def test_a_booking_whose_completion_has_arrived_is_not_asked_about(farm: Farm) -> None:
    await farm.start()
    await _launch(farm, 1)
    proc, frame = farm.fake.launches[0][2], farm.fake.launches[0][1]
    farm.one(
        'select maestro.report_completion(jsonb_build_object(\'host\', \'{"name": "h0"}\'::jsonb,'
        " 'frame', jsonb_build_object('resource_id', %s::text, 'frame_id', %s::text), 'exit_status', 0))",
        proc, frame,
    )  # fmt: skip
    farm.fake.forget("h0")
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.registered.is_set())
        duty = Verify(daemon.state)
        assert await duty.run_once() == {}
        await duty.close()
        assert farm.one("select maestro.finish_unconfirmed(%s::jsonb)",
                        f'[{{"pk_proc": "{proc}", "outcome": "lost"}}]') == {"confirmed": 0, "unbooked": 0}  # fmt: skip


async def test_living_launchers_share_the_hosts_among_them(farm: Farm) -> None:
    await farm.start(hosts=20, cores=2)
    await _launch(farm, 40)
    async with farm.launcher() as one, farm.launcher() as two:
        await farm.until(lambda: one.state.registered.is_set() and two.state.registered.is_set())
        shares = [
            {row["host_name"] for row in farm.one("select maestro.claim_unconfirmed(%s, 1000, '{}')", each)}
            for each in (one.state.launcher_id, two.state.launcher_id)
        ]
    assert shares[0] | shares[1] == set(farm.fake.hosts)
    assert not shares[0] & shares[1]

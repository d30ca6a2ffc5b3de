"""The orders duty: kills hit the booking they were meant for, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from launcher import orders
from launcher.db import DatabaseAway, Link
from sim.fake_rqd import Fault
from tests.launcher.farm import Farm


async def _launch(farm: Farm) -> tuple[str, str]:
    """One running frame: (frame id, resource id)."""
    farm.book(1)
    async with farm.launcher():
        await farm.until(lambda: farm.open_launches() == 0)
    return farm.fake.launches[0][1:]


def _order(farm: Farm, kind: str, proc: str | None = None, frame: str | None = None) -> None:
    farm.db.execute(
        "insert into maestro.host_order (kind, pk_host, pk_proc, pk_frame, reason)"
        " select %s, pk_host, %s, %s, 'test' from host",
        [kind, proc, frame],
    )


def _open(farm: Farm) -> int:
    return int(farm.one("select count(*) from maestro.host_order"))


async def test_a_kill_reaches_the_frame(farm: Farm) -> None:
    await farm.start()
    frame, proc = await _launch(farm)
    _order(farm, "kill", proc, frame)
    async with farm.launcher():
        await farm.until(lambda: _open(farm) == 0)
    assert farm.fake.kills == [("h0", frame)]


async def test_a_kill_for_an_old_booking_spares_the_new_one(farm: Farm) -> None:
    await farm.start()
    frame, _ = await _launch(farm)
    _order(farm, "kill", "an-older-booking", frame)
    async with farm.launcher():
        await farm.until(lambda: _open(farm) == 0)
    assert farm.fake.kills == []


async def test_an_order_whose_claim_was_answered_to_nobody_is_carried_out(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await farm.start()
    frame, proc = await _launch(farm)
    _order(farm, "kill", proc, frame)
    lost = []
    call = Link.call

    async def cut(self: Link, sql: str, *arguments: Any) -> Any:
        answer = await call(self, sql, *arguments)
        if not lost and "claim_orders" in sql and answer:
            lost.extend(answer)
            raise DatabaseAway("the answer was lost")
        return answer

    monkeypatch.setattr(Link, "call", cut)
    async with farm.launcher():
        await farm.until(lambda: _open(farm) == 0)
    assert lost
    assert farm.fake.kills == [("h0", frame)]


async def test_a_kill_waits_for_a_host_that_is_silent_and_is_given_up_in_the_end(farm: Farm) -> None:
    await farm.start()
    frame, proc = await _launch(farm)
    farm.fake.host("h0").fault = Fault.DEAD
    _order(farm, "kill", proc, frame)
    async with farm.launcher():
        await farm.until(lambda: farm.one("select max(attempts) from maestro.host_order") >= 2)
        await farm.until(lambda: _open(farm) == 0)
    assert farm.fake.kills == []
    assert orders.ATTEMPTS_MAX > 2


async def test_restart_idle_makes_a_stock_rqd_leave_when_idle(farm: Farm) -> None:
    await farm.start()
    _order(farm, "restart_idle")
    async with farm.launcher():
        await farm.until(lambda: _open(farm) == 0)
    assert farm.fake.host("h0").restarting


async def test_an_order_for_a_host_that_is_gone_is_dropped(farm: Farm) -> None:
    await farm.start()
    farm.db.execute(
        "insert into maestro.host_order (kind, pk_host, reason) values ('restart_idle', 'no-such-host', 'test')"
    )
    async with farm.launcher():
        await farm.until(lambda: _open(farm) == 0)

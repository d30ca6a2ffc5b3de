"""Notifications are a hint: with them lost, late or impossible the work is still found."""

from __future__ import annotations

import psycopg
import pytest

from launcher.listen import Listen
from tests.launcher.farm import Farm


async def test_where_notifications_do_not_arrive_the_launcher_says_so_and_polls(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: Listen, connection: object) -> bool:
        return False

    monkeypatch.setattr(Listen, "_self_test", deaf)
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.health.get("listen") is False)
        farm.book(3)
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(farm.fake.launches) == 3


async def test_the_self_test_tells_a_connection_that_hears_from_one_that_does_not(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.listen.SELF_TEST_S", 0.5)
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.health.get("listen"))
        async with await psycopg.AsyncConnection.connect(farm.dsn, autocommit=True) as connection:
            assert await Listen(daemon.state)._self_test(connection)
            # As behind a transaction pooler: the session that listens is not the one that is read from.
            execute = connection.execute

            async def elsewhere(statement: str) -> object:
                return await execute("select 1" if statement.startswith("listen") else statement)

            monkeypatch.setattr(connection, "execute", elsewhere)
            assert not await Listen(daemon.state)._self_test(connection)


async def test_a_broken_listening_connection_is_made_anew_and_nothing_is_missed(farm: Farm) -> None:
    await farm.start(hosts=4)
    async with farm.launcher(poll_s=60.0) as daemon:
        for number in range(5):
            await farm.until(lambda: daemon.state.health.get("listen"))
            farm.db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'maestro launcher listen'"
            )
            farm.submit(2, name=f"job{number}")
            farm.tick()
            await farm.until(lambda: farm.open_launches() == 0)
    assert len(farm.fake.launches) == 10


async def test_every_connection_broken_at_once_costs_nothing(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.health.get("listen"))
        farm.db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'maestro launcher%'"
        )
        farm.book(8)
        await farm.until(lambda: farm.open_launches() == 0)
    assert len(set(farm.fake.launches)) == len(farm.fake.launches) == 8
    farm.check()


async def test_a_launcher_whose_row_is_gone_registers_anew(farm: Farm) -> None:
    await farm.start()
    async with farm.launcher() as daemon:
        await farm.until(lambda: daemon.state.registered.is_set())
        first = daemon.state.launcher_id
        farm.db.execute("delete from maestro.launcher")
        await farm.until(lambda: farm.one("select count(*) from maestro.launcher") == 1)
        assert farm.one("select launcher_id from maestro.launcher") != first
        farm.book(2)
        await farm.until(lambda: farm.open_launches() == 0)
    assert farm.one("select count(*) from maestro.launcher") == 0

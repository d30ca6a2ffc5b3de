"""The scenario of a primary that dies: its standby takes over with all that was known."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace

from db.cluster import Cluster
from db.connection import connect
from db.install import install
from sim import script, world
from sim.lab import EMPTY, Lab
from sim.standby import Pair, kill_server, promote, standby_of, wait
from sim.verify import Bar, Live, Numbers, Scenario, World

HOSTS, CORES = 8, 16
SMALL = (("shared_buffers", "'128MB'"), ("max_wal_size", "'512MB'"))


@contextlib.contextmanager
def _pair(lab: Lab) -> Iterator[tuple[Lab, Cluster, Cluster]]:
    """A lab of two servers, the primary and its standby."""
    directory = lab.directory / "failover"
    directory.mkdir()
    directory.chmod(0o755)  # the server's user looks in
    alone = Pair(directory / "pg", extra=SMALL)
    try:
        alone.start()
        with connect(alone.dsn("postgres")) as connection:
            connection.execute(f"create database {EMPTY}")
        with connect(alone.dsn(EMPTY)) as connection:
            install(connection, standalone=True)
        with standby_of(alone) as standby:
            yield Lab(directory, replace(alone, standby=standby.directory)), alone, standby
    finally:
        alone.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def failover(given: World) -> Numbers:
    """kill -9 of the primary while the farm works, a host is held, and frames wait to be launched.

    In the control run the standby has stopped to follow some time before.
    """
    frames = given.size(6000, 1500)
    with _pair(given.lab) as (lab, primary, standby):
        pair = World(lab, given.seconds, given.quick, given.control, given.say)
        hosts = world.uniform(CORES, HOSTS)
        with pair.live(hosts, settings={"reservation_block_seconds": 1}, report_s=1.0) as live:
            _hold_a_host(live)
            for number in range(4):
                load = script.layer("render", frames // 4, env={"SIM_RUN_S": "0.7-1.3"})
                script.submit(live.connection, f"load{number}", [load])
            if given.control:
                _stop_following(primary, standby)
            live.until("frames end", lambda: live.done() > frames // 8)
            held = live.connection.execute("select pk_host, granted_at from maestro.reservation").fetchall()
            seen = len(live.stage.ticks.answers)
            given.say("killing the primary")
            kill_server(primary)
            running = live.stage.farm.stats()["running"]
            began = time.monotonic()
            promote(standby)
            live.reconnect()
            live.until("ticks resume", lambda: len(live.stage.ticks.answers) > seen)
            back = time.monotonic() - began
            kept = live.connection.execute("select pk_host, granted_at from maestro.reservation").fetchall()
            total = frames + 2
            if given.control:
                live.waited(lambda: live.done() > frames // 4, 20.0)
            else:
                live.until("the load is done", lambda: live.done() >= frames, 120.0 + 6 * given.seconds)
                live.stage.farm.tell("finish")
                live.finish(total)
            totals, found = live.stage.farm.stats(), script.states(live.connection)
            numbers = {
                "frames": total, "done": found["SUCCEEDED"] / total, "running_when_killed": running,
                "doubles": totals["doubles"], "extra_launches": totals["launched"] - total,
                "lost_ends": totals["ended"] - found["SUCCEEDED"]
                - live.one("select count(*) from maestro.completion"),
                "retries": live.one("select coalesce(sum(int_retries), 0)::int from public.frame"),
                "ticks_after_s": back, "holds": len(held), "holds_lost": len(set(held) - set(kept)),
            }  # fmt: skip
        given.faults |= pair.faults
    return numbers


def _hold_a_host(live: Live) -> None:
    """A frame as wide as a host that waits for the end of a long one, and there alone: the host is held for it."""
    script.submit(live.connection, "long", [script.layer("render", 1, tags="host0001", env={"SIM_RUN_S": "3600"})])
    live.until("the long frame runs", lambda: live.stage.farm.stats()["running"] == 1)
    script.submit(live.connection, "wide", [script.layer("render", 1, CORES, tags="host0001", env={"SIM_RUN_S": "1"})])
    live.until("the host is held", lambda: live.one("select count(*) from maestro.reservation"))


def _stop_following(primary: Cluster, standby: Cluster) -> None:
    with connect(primary.dsn("postgres")) as connection:
        end = script.one(connection, "select pg_current_wal_lsn()")
        connection.execute("alter system set synchronous_standby_names = ''")
        connection.execute("select pg_reload_conf()")
    with connect(standby.dsn("postgres")) as connection:
        wait("the standby has it", lambda: script.one(connection, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", end))
        connection.execute("alter system set primary_conninfo = ''")
        connection.execute("select pg_reload_conf()")


SCENARIOS = (
    Scenario(
        "FAILOVER", "A standby is promoted: ticks resume, holds stand, nothing is lost and nothing runs twice.",
        failover,
        (
            Bar("done", at_least=1), Bar("doubles", at_most=0), Bar("extra_launches", at_most=0),
            Bar("lost_ends", at_most=0), Bar("retries", at_most=0), Bar("holds_lost", at_most=0),
            Bar("ticks_after_s", at_most=30),
        ),
        ("holds", "running_when_killed"), ("lost_ends",),
    ),
)  # fmt: skip

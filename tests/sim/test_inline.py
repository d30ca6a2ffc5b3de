"""The farm on virtual time: real ticks and reports, the same outcome on any machine."""

from __future__ import annotations

from typing import Any

import psycopg

from sim import script, world
from sim.feed import Feed, Mix, Mode
from sim.inline import End, Inline


def _boot(db: psycopg.Connection[Any], count: int = 4) -> list[world.Host]:
    hosts = [world.host(f"host{number}", 8, 32) for number in range(count)]
    world.boot(db, hosts)
    return hosts


def test_a_job_runs_to_its_end_and_the_books_balance(db: psycopg.Connection[Any]) -> None:
    _boot(db)
    script.submit(db, "work", [script.layer("render", 100)])
    farm = Inline(db, seconds=lambda booked: 90.0, ending=lambda booked: End(reports=2))
    assert farm.drain(steps=20)
    assert script.states(db)["SUCCEEDED"] == farm.ended == 100
    assert farm.bookings["demo-sim-sim_work"] == 100
    assert db.execute("select * from maestro.check_accounting()").fetchall() == []


def test_a_frame_that_fails_once_runs_again(db: psycopg.Connection[Any]) -> None:
    _boot(db)
    script.submit(db, "work", [script.layer("render", 10)])
    failed: set[str] = set()

    def ending(booked: Any) -> End:
        first = booked.pk_frame not in failed
        failed.add(booked.pk_frame)
        return End(status=1 if first else 0)

    farm = Inline(db, seconds=lambda booked: 10.0, ending=ending)
    assert farm.drain(steps=20)
    assert (script.states(db)["SUCCEEDED"], farm.ended) == (10, 20)


def test_hosts_keep_what_an_operator_tags_them_with(db: psycopg.Connection[Any]) -> None:
    hosts = _boot(db)
    world.tag(db, ["host1"], ["special"])
    world.boot(db, hosts)
    tags = script.one(db, "select str_tags from host where str_name = 'host1'").split()
    assert {"general", "host1", "special", "64bit", "linux"} <= set(tags)


def test_a_feed_of_one_seed_makes_the_same_jobs(db: psycopg.Connection[Any]) -> None:
    _boot(db)
    mix = Mix(mode=Mode.TREES, shows=2, licences=5, gpu=0.2, widest_cores=8, most_memory_gib=32)
    feed = Feed(db, mix, seed=7)
    feed.prepare(cores=32)
    made = [feed.submit() for _ in range(4)]
    shapes = "select array_agg(int_cores_min || ':' || int_mem_min || ':' || str_range order by j.str_name, l.str_name)"
    first = script.one(db, f"{shapes} from layer as l join job as j using (pk_job)")
    db.execute("select maestro.kill_job(pk_job) from job")
    again = Feed(db, mix, seed=7)
    assert [again.submit() for _ in range(4)] == made
    second = script.one(db, f"{shapes} from layer as l join job as j using (pk_job) where j.str_state = 'PENDING'")
    assert second == first
    assert script.one(db, "select count(distinct pk_show) from job") == 2

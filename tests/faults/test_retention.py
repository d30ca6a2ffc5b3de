"""What is logged is forgotten in time: a week at our cadence leaves a day."""

from __future__ import annotations

from typing import Any

import psycopg

from db import schedule
from db.cluster import Cluster
from tests.db.farm import one

Db = psycopg.Connection[Any]


def test_after_seven_days_the_tick_log_holds_a_day(db: Db) -> None:
    """P77, a tick a minute: the sweep runs as often as it would."""
    db.execute(
        "insert into maestro.tick (started_at, seed, status)"
        " select t, 1, 'planned' from generate_series(now() - interval '7 days', now(), interval '10 s') as t"
    )
    db.execute(
        "insert into maestro.tick_plan (tick_id, layers, hosts, layer, host, frames)"
        " select tick_id, '{a}', '{h}', '{1}', '{1}', '{1}' from maestro.tick"
    )
    db.execute(
        "insert into maestro.fault (at, kind, detail)"
        " select t, 'test', '{}' from generate_series(now() - interval '7 days', now(), interval '1 min') as t"
    )
    for minutes in range(8):
        db.execute("select maestro.sweep(now() + make_interval(mins => %s))", [minutes])
    for table, at in (("maestro.tick", "started_at"), ("maestro.fault", "at")):
        assert one(db, f"select min({at}) > now() - interval '24 hours 1 minute' from {table}")
        assert one(db, f"select max({at}) > now() - interval '1 minute' from {table}")
    assert one(db, "select count(*) from maestro.tick_plan") == one(db, "select count(*) from maestro.tick")


def test_pg_crons_own_log_of_our_jobs_is_kept_to_a_day(db: Db, cluster: Cluster) -> None:
    """P77: the job that forgets does what it says, and leaves the logs of others alone."""
    schedule.schedule(db, 500)
    try:
        with psycopg.connect(cluster.dsn("maestro"), autocommit=True) as cron:
            jobs = dict(cron.execute("select jobname, jobid from cron.job").fetchall())
            ours = jobs[f"maestro_tick@{db.info.dbname}"]
            cron.execute(
                "insert into cron.job_run_details (jobid, database, command, status, start_time)"
                " select j, 'x', 'x', 'succeeded', t"
                " from unnest(%s::bigint[]) as j,"
                " generate_series(now() - interval '7 days', now(), interval '5 min') as t",
                [[ours, 987_654_321]],
            )
            command, when = cron.execute(
                "select command, schedule from cron.job where jobname = 'maestro_cron_history'"
            ).fetchall()[0]
            assert when.split()[1:] == ["*"] * 4, "every hour"
            cron.execute(command)
            left = dict(cron.execute(
                "select jobid, min(start_time) > now() - interval '24 hours 1 minute' from cron.job_run_details"
                " where jobid = any(%s) group by 1", [[ours, 987_654_321]],
            ).fetchall())  # fmt: skip
            assert left == {ours: True, 987_654_321: False}
            cron.execute("delete from cron.job_run_details where jobid = 987654321")
    finally:
        assert schedule.unschedule(db)
    with psycopg.connect(cluster.dsn("maestro"), autocommit=True) as cron:
        assert one(cron, "select count(*) from cron.job") == 0

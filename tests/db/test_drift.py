"""Counters that lie: the next tick plans by what really runs, puts them right and says so."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.db.farm import accounting, add_host, add_job, column, layer_of, one, tick

Db = psycopg.Connection[Any]

IDLE = ["int_cores_idle", "int_mem_idle", "int_gpus_idle", "int_gpu_mem_idle"]
COUNTERS = ["subscription", "folder_resource", "job_resource", "layer_resource", "point"]


def unguarded(db: Db, statement: str, *values: Any) -> None:
    """Run an update that the table's own guards would refuse: what a faulty writer left behind."""
    table = statement.split()[1]
    guards = column(db, "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal", table)
    with db.transaction():
        for guard in guards:
            db.execute(f"alter table {table} disable trigger {guard}")  # type: ignore[arg-type]
        db.execute(statement, values)  # type: ignore[arg-type]
        for guard in guards:
            db.execute(f"alter table {table} enable always trigger {guard}")  # type: ignore[arg-type]


@pytest.mark.parametrize("column_name", IDLE)
@pytest.mark.parametrize("lie", [-2550, 1 << 30])
def test_a_host_with_a_wrong_idle_amount_is_planned_by_its_procs_and_repaired(
    db: Db, column_name: str, lie: int
) -> None:
    add_host(db, "host1", cores=8, gpus=2)
    add_job(db, "job", {"render": 20})
    db.execute("update job_resource set int_max_cores = 300")
    assert tick(db)["committed"] == 3
    db.execute("update job_resource set int_max_cores = 100000")
    unguarded(db, f"update host set {column_name} = %s", lie)
    done = tick(db)
    assert (done["drift_repaired"], done["committed"], done["dropped"]) == (1, 5, {})
    assert one(db, "select int_cores_idle from host") == 0
    assert column(db, "select detail ->> 'what' from maestro.fault where kind = 'drift'") == ["host"]
    assert accounting(db) == []
    assert tick(db)["drift_repaired"] == 0


def test_random_counters_change_nothing_in_the_next_tick(db: Db) -> None:
    for number in range(6):
        add_host(db, f"host{number}", cores=8)
    jobs = [add_job(db, f"job{number}", {"render": 12, "comp": 5}) for number in range(3)]
    db.execute("update job_resource set int_max_cores = 1200")
    db.execute("update folder_resource set int_max_cores = 4000")
    db.execute("update subscription set int_burst = 4200")
    db.execute("insert into limit_record (pk_limit_record, str_name, int_max_value) values ('l', 'licence', 9)")
    db.execute("insert into layer_limit (pk_layer_limit, pk_layer, pk_limit_record) values ('ll', %s, 'l')",
               [layer_of(db, jobs[0], "comp")])  # fmt: skip
    db.execute('select maestro.report_limit_usage(\'{"limit": "licence", "hosts": [{"host": "host1"}]}\')')
    assert tick(db)["committed"] == 36
    db.execute("update job_resource set int_max_cores = 1500")
    untouched = one(db, "select maestro_tick(true, 7)")
    for table in COUNTERS:
        unguarded(db, f"update {table} set int_cores = (random() * 9000)::int, int_gpus = (random() * 9)::int")
    unguarded(db, "update limit_usage set int_settled_usage = 77, int_settled_hosts = 33")
    done = one(db, "select maestro_tick(false, 7)")
    for key in ("planned", "committed", "dropped", "waiting", "idle_cores", "errors"):
        assert done[key] == untouched[key], key
    assert done["committed"] == 4  # up to the folder's cap
    assert done["drift_repaired"] >= 12
    assert accounting(db) == []
    assert one(db, "select (int_settled_usage, int_settled_hosts) = (1, 1) from limit_usage")
    assert tick(db)["drift_repaired"] == 0


def test_a_cap_below_what_runs_does_not_refuse_the_truth(db: Db) -> None:
    add_host(db, "host1", cores=8)
    add_job(db, "job", {"render": 20})
    tick(db)
    unguarded(db, "update job_resource set int_cores = 0, int_max_cores = 100")
    unguarded(db, "update subscription set int_cores = 0, int_burst = 100")
    assert tick(db)["drift_repaired"] == 2
    assert one(db, "select int_cores from job_resource") == one(db, "select int_cores from subscription") == 800
    assert one(db, "select int_max_cores from job_resource") == one(db, "select int_burst from subscription") == 100
    assert accounting(db) == []


def test_a_large_farm_is_compared_in_slices_and_whole_within_ten_ticks(db: Db) -> None:
    for number in range(30):
        add_host(db, f"host{number}", cores=4)
    job = add_job(db, "job", {"render": 60})
    db.execute("update job_resource set int_max_cores = 3000")
    tick(db)
    waits = one(db, "select int_running_count from job_stat where pk_job = %s", job)
    db.execute("update job set b_paused = true")
    unguarded(db, "update job_stat set int_running_count = 20000")  # as if ten slices' worth of procs ran
    unguarded(db, "update host set int_cores_idle = 7, int_mem_idle = 7")
    unguarded(db, "update layer_resource set int_cores = 5")
    repaired = [tick(db)["drift_repaired"] for _ in range(10)]
    assert sum(repaired) == 31
    assert max(repaired) < 31
    unguarded(db, "update job_stat set int_running_count = %s", waits)
    assert accounting(db) == []


def test_a_host_that_holds_more_than_it_has_gets_nothing_and_stops_no_tick(db: Db) -> None:
    add_host(db, "host1", cores=8)
    add_host(db, "host2", cores=2)
    add_job(db, "job", {"render": 20})
    db.execute("update job_resource set int_max_cores = 1000")
    tick(db)
    unguarded(db, "update host set int_cores = 400, int_cores_idle = 300 where str_name = 'host1'")
    db.execute("update job_resource set int_max_cores = 100000")
    done = tick(db)
    assert (done["drift_repaired"], done["committed"]) == (1, 0)
    assert one(db, "select int_cores_idle from host where str_name = 'host1'") == 0
    unguarded(db, "update host set int_cores = 800 where str_name = 'host1'")
    assert accounting(db) == []


def test_a_repair_that_fails_is_named_and_costs_nothing_else(db: Db) -> None:
    add_host(db, "host1", cores=8)
    add_job(db, "job", {"render": 2})
    db.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no repairs'; end $$"
    )
    unguarded(db, "update point set int_cores = 5")
    db.execute("create trigger refuse before insert on maestro.fault for each row execute function refuse()")
    done = one(db, "select maestro_tick()")
    assert (done["status"], done["committed"], done["drift_repaired"]) == ("planned", 2, 0)
    assert done["errors"] == [{"what": "counters", "message": "no repairs"}]
    db.execute("drop trigger refuse on maestro.fault")
    assert tick(db)["drift_repaired"] == 1
    assert accounting(db) == []

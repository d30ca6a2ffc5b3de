"""Jobs for simulations, and what one asks of the database about them."""

from __future__ import annotations

import json
from typing import Any

import psycopg

SHOW = "demo"
SPEC_FRAMES = 100_000  # most that one spec may hold
SPEC_LAYERS = 2_000


def full_name(name: str, show: str = SHOW) -> str:
    """What a job submitted as `name` is called in the database."""
    return f"{show}-sim-sim_{name}"


def layer(
    name: str, frames: int, cores: float = 1, memory_mib: int = 256, tags: str = "general", **more: Any
) -> dict[str, Any]:
    """One layer of a spec, of frames that keep their size; `more` are its other elements (docs/job-spec.md)."""
    return {
        "name": name, "cmd": "render #IFRAME#", "range": f"1-{frames}", "cores": f"{float(cores)}",
        "memory": f"{memory_mib}m", "tags": tags, "threadable": False, **more,
    }  # fmt: skip


def layers(count: int, frames: int, **more: Any) -> list[dict[str, Any]]:
    """So many layers as in `layer`, alike. One alone takes only a part of each host (layer_host_max_frac)."""
    return [layer(f"render{number}", frames // count, **more) for number in range(1, count + 1)]


def submit(
    connection: psycopg.Connection[Any], name: str, layers: list[dict[str, Any]], *, priority: int = 50,
    show: str = SHOW, depends: list[dict[str, Any]] | None = None, **more: Any,
) -> str:  # fmt: skip
    """Submit a job of these layers; `more` are further elements of the job. Returns its pk_job."""
    spec = {
        "show": show, "shot": "sim", "user": "sim",
        "jobs": [{"name": name, "priority": priority, "maxretries": 3, "layers": layers, **more}],
        "depends": depends or [],
    }  # fmt: skip
    return str(one(connection, "select maestro.submit_job(%s::jsonb)", json.dumps(spec))["jobs"][0]["pk_job"])


def make_show(connection: psycopg.Connection[Any], name: str, size_cores: int, burst_cores: int) -> None:
    """A show like the seeded one, with a subscription of its own to the default allocation."""
    connection.execute("insert into show (pk_show, str_name) values (gen_random_uuid()::text, %s)", [name])
    for statement in (
        "insert into show_stats (pk_show) select pk_show from show where str_name = %(name)s",
        "insert into folder (pk_folder, pk_show, str_name, pk_dept, b_default)"
        " select gen_random_uuid()::text, s.pk_show, s.str_name, d.pk_dept, true from show as s, dept as d"
        " where s.str_name = %(name)s and d.b_default",
        "insert into point (pk_point, pk_dept, pk_show)"
        " select gen_random_uuid()::text, d.pk_dept, s.pk_show from show as s, dept as d"
        " where s.str_name = %(name)s and d.b_default",
        "insert into subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)"
        " select gen_random_uuid()::text, a.pk_alloc, s.pk_show, maestro.core_points(%(size)s),"
        " maestro.core_points(%(burst)s) from show as s, alloc as a where s.str_name = %(name)s and a.b_default",
    ):
        connection.execute(statement, {"name": name, "size": size_cores, "burst": burst_cores})


def make_limit(
    connection: psycopg.Connection[Any], name: str, most: int, per_host: bool = False, denied_status: int | None = None,
    delay_minutes: int = 0,
) -> None:  # fmt: skip
    """A limit on running frames, or on the machines that run them; `denied_status`: how a frame ends that got none."""
    connection.execute(
        "insert into limit_record (pk_limit_record, str_name, int_max_value, str_type, int_exit_status,"
        " int_delay_minutes) values (gen_random_uuid()::text, %s, %s, %s, %s, %s)",
        [name, most, "HOST" if per_host else "FRAME", denied_status, delay_minutes],
    )


def set_values(connection: psycopg.Connection[Any], **settings: object) -> None:
    """Write settings of Maestro."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "update maestro.setting set value = %s where name = %s",
            [(str(value), name) for name, value in settings.items()],
        )


def states(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Frame state -> number of frames, from the jobs' counters."""
    row = connection.execute(
        "select sum(int_waiting_count), sum(int_running_count), sum(int_succeeded_count), sum(int_depend_count),"
        " sum(int_dead_count), sum(int_eaten_count) from public.job_stat"
    ).fetchone()
    assert row is not None
    names = ("WAITING", "RUNNING", "SUCCEEDED", "DEPEND", "DEAD", "EATEN")
    return {name: int(count or 0) for name, count in zip(names, row, strict=True)}


def one(connection: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    """The only value that `query` returns."""
    row = connection.execute(query, values or None).fetchone()
    assert row is not None
    return row[0]

"""A small farm for tests: rows in OpenCue's tables, and bookings made by hand as the tick makes them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from launcher.db import rows_of

SHOW = "00000000-0000-0000-0000-000000000051"
ALLOC = "00000000-0000-0000-0000-0000000000a1"
DEPT = "00000000-0000-0000-0000-0000000000d1"
FOLDER = "00000000-0000-0000-0000-0000000000e1"
FACILITY = "00000000-0000-0000-0000-0000000000f1"
GIB = 1048576

Db = psycopg.Connection[Any]


def one(db: Db, statement: str, *values: Any) -> Any:
    """First column of the only row."""
    rows = db.execute(statement, values).fetchall()  # type: ignore[arg-type]
    assert len(rows) == 1, rows
    return rows[0][0]


def column(db: Db, statement: str, *values: Any) -> list[Any]:
    """First column of all rows."""
    return [row[0] for row in db.execute(statement, values).fetchall()]  # type: ignore[arg-type]


def _is_json(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def claim(db: Db, launcher: int, most: int) -> list[dict[str, Any]]:
    """Launches that a launcher claims."""
    return rows_of(call(db, "claim_launches", launcher, most)["launches"])


def call(db: Db, function: str, *values: Any) -> Any:
    """Result of a maestro function; dicts and lists of dicts go as jsonb."""
    sent = [Jsonb(v) if _is_json(v) else v for v in values]
    marks = ", ".join(["%s"] * len(sent))
    return one(db, f"select maestro.{function}({marks})", *sent)


def add_host(db: Db, name: str, cores: int = 16, mem_gib: int = 64, gpus: int = 0) -> str:
    """A host that is UP, OPEN and idle; whole cores, GiB. Returns pk_host."""
    key = str(uuid.uuid4())
    db.execute(
        "insert into host (pk_host, pk_alloc, str_name, str_lock_state, str_fqdn, str_tags, int_cores, int_cores_idle,"
        " int_mem, int_mem_idle, int_gpus, int_gpus_idle, int_gpu_mem, int_gpu_mem_idle)"
        " values (%s, %s, %s, 'OPEN', %s, 'general', %s, %s, %s, %s, %s, %s, %s, %s)",
        [key, ALLOC, name, name, *[cores * 100] * 2, *[mem_gib * GIB] * 2, *[gpus] * 2, *[gpus * 8 * GIB] * 2],
    )
    db.execute("insert into host_tag values (%s, %s, 'general', 'ALLOC', true)", [f"tag of {name}", key])
    db.execute(
        "insert into host_stat (pk_host_stat, pk_host, int_mem_total, int_mem_free) values (%s, %s, %s, %s)",
        [key, key, mem_gib * GIB, mem_gib * GIB],
    )
    return key


def uncap(db: Db) -> None:
    """Let one layer take whole hosts."""
    db.execute("update maestro.setting set value = '0' where name = 'layer_host_max_frac'")


def add_job(db: Db, name: str, layers: dict[str, int], retries: int = 1, **columns: Any) -> str:
    """A PENDING job with these layers ({name: frames}), all frames WAITING, none threadable. Returns pk_job."""
    job = str(uuid.uuid4())
    db.execute(
        "insert into job (pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,"
        " int_max_retries, pk_facility, pk_dept, str_show)"
        " values (%s, %s, %s, %s, %s, 'shot', 'user', 'STARTUP', %s, %s, %s, 'demo')",
        [job, FOLDER, SHOW, name, name, retries, FACILITY, DEPT],
    )
    for layer_name, frames in layers.items():
        layer = str(uuid.uuid4())
        db.execute(
            "insert into layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min,"
            " b_threadable) values (%s, %s, %s, 'true', %s, 'RENDER', 'general', %s, false)",
            [layer, job, layer_name, f"1-{frames}", GIB],
        )
        db.execute(
            "insert into frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order,"
            " int_dispatch_order, ts_updated)"
            " select gen_random_uuid()::text, %s, %s, to_char(n, 'FM0000') || '-' || %s, 'SETUP', n, n, n, now()"
            " from generate_series(1, %s) as n",
            [layer, job, layer_name, frames],
        )
    db.execute("update job_resource set int_max_cores = 10000000 where pk_job = %s", [job])
    for name_of_column, value in columns.items():
        db.execute(f"update job set {name_of_column} = %s where pk_job = %s", [value, job])  # type: ignore[arg-type]
    activate(db, job)
    return job


def activate(db: Db, job: str) -> None:
    """Frames from SETUP to WAITING, counters assigned, job PENDING: the end of a submission."""
    db.execute("update frame set str_state = 'WAITING' where pk_job = %s and str_state = 'SETUP'", [job])
    db.execute(
        "update layer_stat s set int_total_count = c.total, int_waiting_count = c.waiting, int_depend_count = c.depend"
        " from (select pk_layer, count(*) total, count(*) filter (where str_state = 'WAITING') waiting,"
        " count(*) filter (where str_state = 'DEPEND') depend from frame where pk_job = %s group by pk_layer) c"
        " where s.pk_layer = c.pk_layer",
        [job],
    )
    db.execute(
        "update job_stat s set int_waiting_count = c.waiting, int_depend_count = c.depend"
        " from (select count(*) filter (where str_state = 'WAITING') waiting,"
        " count(*) filter (where str_state = 'DEPEND') depend from frame where pk_job = %s) c where s.pk_job = %s",
        [job, job],
    )
    db.execute(
        "update job set str_state = 'PENDING', int_frame_count = (select count(*) from frame where pk_job = %s)"
        " where pk_job = %s",
        [job, job],
    )


def layer_of(db: Db, job: str, name: str) -> str:
    return str(one(db, "select pk_layer from layer where pk_job = %s and str_name = %s", job, name))


def frames_of(db: Db, job: str, layer: str | None = None) -> list[str]:
    """Frames in order of layer and number."""
    return column(
        db,
        "select f.pk_frame from frame f join layer l using (pk_layer) where f.pk_job = %s"
        " and (%s::text is null or l.str_name = %s) order by l.str_name, f.int_number",
        job, layer, layer,
    )


def state(db: Db, frame: str) -> str:
    return str(one(db, "select str_state from frame where pk_frame = %s", frame))


def book(db: Db, frame: str, host: str, cores: int = 100, mem: int = GIB, age_seconds: int = 60) -> str:
    """Book one WAITING frame as the tick does: frame, proc, host and the five counter tables. Returns pk_proc."""
    proc = str(uuid.uuid4())
    with db.transaction():
        done = db.execute(
            "update frame set str_state = 'RUNNING', str_host = (select str_name from host where pk_host = %s),"
            " int_cores = %s, int_mem_reserved = %s, ts_started = now() - make_interval(secs => %s),"
            " ts_updated = now(), ts_stopped = null, int_version = int_version + 1,"
            " int_retries = int_retries + case when int_exit_status in (-1, 256, 286, 299, 301, 302, 399)"
            " then 0 else 1 end"
            " where pk_frame = %s and str_state = 'WAITING'",
            [host, cores, mem, age_seconds, frame],
        )
        assert done.rowcount == 1
        db.execute(
            "insert into proc (pk_proc, pk_host, pk_show, pk_job, pk_layer, pk_frame, int_cores_reserved,"
            " int_mem_reserved, int_mem_pre_reserved, int_mem_used)"
            " select %s, %s, j.pk_show, j.pk_job, f.pk_layer, f.pk_frame, %s, %s, %s, 262144"
            " from frame f join job j using (pk_job) where f.pk_frame = %s",
            [proc, host, cores, mem, mem, frame],
        )
        db.execute(
            "update host set int_cores_idle = int_cores_idle - %s, int_mem_idle = int_mem_idle - %s where pk_host = %s",
            [cores, mem, host],
        )
        for statement in (
            "update subscription s set int_cores = s.int_cores + %s from proc p, host h"
            " where p.pk_proc = %s and h.pk_host = p.pk_host and s.pk_show = p.pk_show and s.pk_alloc = h.pk_alloc",
            "update layer_resource s set int_cores = s.int_cores + %s from proc p"
            " where p.pk_proc = %s and s.pk_layer = p.pk_layer",
            "update job_resource s set int_cores = s.int_cores + %s from proc p"
            " where p.pk_proc = %s and s.pk_job = p.pk_job",
            "update folder_resource s set int_cores = s.int_cores + %s from proc p, job j"
            " where p.pk_proc = %s and j.pk_job = p.pk_job and s.pk_folder = j.pk_folder",
            "update point s set int_cores = s.int_cores + %s from proc p, job j"
            " where p.pk_proc = %s and j.pk_job = p.pk_job and s.pk_show = j.pk_show and s.pk_dept = j.pk_dept",
        ):
            db.execute(statement, [cores, proc])  # type: ignore[arg-type]
    return proc


def completion(db: Db, proc: str, frame: str, status: int = 0, signal: int = 0, **more: Any) -> dict[str, Any]:
    """A FrameCompleteReport; `more`: max_rss (KiB), run_time (s), host (name), nimby_locked, llu_time (epoch s)."""
    host = more.get("host") or column(
        db, "select h.str_name from proc p join host h using (pk_host) where p.pk_proc = %s"
        " union all select str_host from frame where pk_frame = %s union all select str_name from host", proc, frame,
    )[0]
    return {
        "host": {"name": host, "nimby_locked": more.get("nimby_locked", False), "free_mem": str(8 * GIB)},
        "frame": {
            "resource_id": proc, "frame_id": frame, "max_rss": str(more.get("max_rss", 0)),
            "llu_time": str(more.get("llu_time", 0)),
        },
        "exit_status": status, "exit_signal": signal, "run_time": more.get("run_time", 10),
    }


def complete(db: Db, proc: str, frame: str, status: int = 0, signal: int = 0, **more: Any) -> dict[str, Any]:
    """Report a completion and drain it; the drain's answer."""
    call(db, "report_completion", completion(db, proc, frame, status, signal, **more))
    return dict(call(db, "drain"))


def host_report(name: str, frames: list[dict[str, Any]] | None = None, **host: Any) -> dict[str, Any]:
    """A HostReport of a 16-core, 64-GiB host; frames from `run`."""
    return {
        "host": {
            "name": name, "num_procs": 16, "cores_per_proc": 100, "total_mem": str(64 * GIB), "free_mem": str(60 * GIB),
            "tags": ["linux", "64bit"], **host,
        },
        "frames": frames or [],
    }


def run(proc: str, frame: str, rss: int = 0, age_seconds: float = 10, **more: Any) -> dict[str, Any]:
    """A RunningFrameInfo; KiB."""
    return {
        "resource_id": proc, "frame_id": frame, "rss": str(rss), "max_rss": str(rss),
        "start_time": str(int((time.time() - age_seconds) * 1000)), **more,
    }


def depend(
    db: Db, kind: str, er: dict[str, str], on: dict[str, str], any_frame: bool = False, parent: str | None = None
) -> str:
    """A depend row; `er` and `on` hold job, layer, frame keys. Counts it on the frames that wait and holds them."""
    key = str(uuid.uuid4())
    db.execute(
        "insert into depend (pk_depend, pk_parent, pk_job_depend_on, pk_job_depend_er, pk_frame_depend_on,"
        " pk_frame_depend_er, pk_layer_depend_on, pk_layer_depend_er, str_type, b_any, str_signature)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [key, parent, on["job"], er["job"], on.get("frame"), er.get("frame"), on.get("layer"), er.get("layer"), kind,
         any_frame, key],
    )
    where, value = {
        "FRAME": ("pk_frame = %s", er.get("frame")), "LAYER": ("pk_layer = %s", er.get("layer")),
        "JOB": ("pk_job = %s", er["job"]),
    }[kind.split("_")[0]]
    db.execute(f"update frame set int_depend_count = int_depend_count + 1 where {where}", [value])  # type: ignore[arg-type]
    return key


def accounting(db: Db) -> list[Any]:
    """Counters that lie; every test ends on this being empty."""
    return db.execute("select * from maestro.check_accounting()").fetchall()


def tick(db: Db) -> dict[str, Any]:
    """One real tick; it must not have failed."""
    answer = dict(one(db, "select public.maestro_tick()"))
    assert answer["status"] == "planned", answer
    assert answer["errors"] == [], answer
    return answer


def running(db: Db, job: str) -> list[tuple[str, str]]:
    """(pk_proc, pk_frame) of what runs of a job, in order of frame number."""
    return db.execute(
        "select p.pk_proc, p.pk_frame from proc p join frame f using (pk_frame) where p.pk_job = %s"
        " order by f.int_layer_order, f.str_name",
        [job],
    ).fetchall()

"""A farm and its workload for benchmarks and simulations, written straight into the tables. Seeded.

The shapes are a real farm's (docs/performance.md names them): three host classes, seven frame sizes with their memory
and minutes. Sums of small rounding errors in published shares are spread over all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

from planner.units import kib_from_gib, points_from_cores


@dataclass(frozen=True)
class HostClass:
    """`count` hosts of equal size; memory in GB, of which `reserved_gb` is not for frames."""

    name: str
    count: int
    cores: int
    nominal_gb: int
    reserved_gb: int


@dataclass(frozen=True)
class FrameClass:
    """Frames of one width: their share (percent), the memory that they use (GB) and run time (minutes), on average."""

    cores: int
    percent: float
    memory_gb: float
    minutes: float


HOST_CLASSES = (
    HostClass("large", 246, 128, 512, 16),
    HostClass("medium", 303, 32, 128, 12),
    HostClass("small", 1004, 16, 64, 8),
)
FRAME_CLASSES = (
    FrameClass(1, 22.89, 0.52, 2.31),
    FrameClass(2, 25.54, 1.38, 4.70),
    FrameClass(4, 34.22, 6.44, 11.38),
    FrameClass(8, 14.55, 27.27, 30.14),
    FrameClass(16, 1.88, 63.85, 52.43),
    FrameClass(32, 0.28, 109.0, 47.98),
    FrameClass(64, 0.03, 233.12, 40.26),
)
FRAMES_PER_LAYER = 100
LAYERS_PER_JOB = 10
FRAMES = 200_000  # at scale 1


def add_hosts(connection: psycopg.Connection[Any], scale: float = 1.0) -> int:
    """Insert UP, OPEN, idle hosts of each class into the default allocation; returns how many."""
    total = 0
    for kind in HOST_CLASSES:
        count = max(1, round(kind.count * scale))
        total += count
        connection.execute(
            """
            with made as (
                insert into host (
                    pk_host, pk_alloc, str_name, str_lock_state, str_tags, str_fqdn,
                    int_cores, int_cores_idle, int_mem, int_mem_idle
                )
                select gen_random_uuid()::text, a.pk_alloc, format('%%s%%s', %(name)s::text, lpad(n::text, 5, '0')),
                       'OPEN', format('general %%s%%s', %(name)s::text, lpad(n::text, 5, '0')),
                       format('%%s%%s.farm.lan', %(name)s::text, lpad(n::text, 5, '0')),
                       %(cores)s, %(cores)s, %(mem)s, %(mem)s
                from alloc as a, generate_series(1, %(count)s) as n
                where a.b_default
                returning pk_host
            )
            insert into host_stat (pk_host_stat, pk_host, str_state, int_mem_total, int_mem_free, str_os)
            select pk_host, pk_host, 'UP', %(mem)s, %(mem)s, 'linux' from made
            """,
            {
                "name": kind.name,
                "count": count,
                "cores": points_from_cores(kind.cores),
                "mem": kib_from_gib(kind.nominal_gb - kind.reserved_gb),
            },
        )
    return total


def add_workload(connection: psycopg.Connection[Any], frames: int, seed: int = 1) -> int:
    """Insert jobs of ten layers of a hundred WAITING frames each; layers draw their width by share, and memory
    lognormally around the average. Returns the number of frames."""
    random = Random(seed)
    count = max(1, frames // FRAMES_PER_LAYER)
    widths = random.choices(FRAME_CLASSES, [kind.percent for kind in FRAME_CLASSES], k=count)
    # sigma 0.5: heavy-tailed; the shift keeps the mean at the class's average.
    memory = [kind.memory_gb * random.lognormvariate(-0.125, 0.5) for kind in widths]
    priorities = [random.choice((1, 10, 50, 100, 200)) for _ in range(1 + (count - 1) // LAYERS_PER_JOB)]
    with connection.transaction():
        connection.execute("create temp table new_layer (n int, pk_job text, pk_layer text, cores int, mem bigint)")
        jobs = [f"bench{n:05d}" for n in range(len(priorities))]
        connection.execute(
            """
            insert into job (
                pk_job, pk_folder, pk_show, str_name, str_visible_name, str_shot, str_user, str_state,
                pk_facility, pk_dept, str_show, str_log_dir, int_frame_count, int_layer_count
            )
            select gen_random_uuid()::text, f.pk_folder, s.pk_show, n, n, 'bench', 'bench', 'PENDING',
                   fa.pk_facility, f.pk_dept, s.str_name, '/nonexistent', %(frames)s, %(layers)s
            from unnest(%(names)s::text[]) as n, show as s, folder as f, facility as fa
            where f.pk_show = s.pk_show and f.b_default and fa.b_default
            """,
            {"names": jobs, "frames": FRAMES_PER_LAYER * LAYERS_PER_JOB, "layers": LAYERS_PER_JOB},
        )
        connection.execute(
            """
            update job_resource as r set int_priority = p.priority, int_max_cores = 100000000, int_max_gpus = 1000000
            from unnest(%s::text[], %s::int[]) as p (name, priority)
            join job as j on j.str_name = p.name
            where r.pk_job = j.pk_job
            """,
            [jobs, priorities],
        )
        connection.execute(
            """
            insert into new_layer
            select t.n, j.pk_job, gen_random_uuid()::text, t.cores, t.mem
            from unnest(%s::text[], %s::int[], %s::bigint[]) with ordinality as t (job, cores, mem, n)
            join job as j on j.str_name = t.job
            """,
            [
                [jobs[n // LAYERS_PER_JOB] for n in range(count)],
                [points_from_cores(kind.cores) for kind in widths],
                [max(kib_from_gib(gb), 262144) for gb in memory],
            ],
        )
        connection.execute(
            """
            insert into layer (
                pk_layer, pk_job, str_name, str_cmd, str_range, int_cores_min, int_mem_min, str_tags, str_type,
                b_threadable, int_dispatch_order
            )
            select pk_layer, pk_job, format('layer%%s', n), 'sleep #IFRAME#', %s, cores, mem, 'general', 'RENDER',
                   true, 1 + (n - 1) %% %s
            from new_layer
            """,
            [f"1-{FRAMES_PER_LAYER}", LAYERS_PER_JOB],
        )
        connection.execute(
            """
            insert into frame (
                pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_dispatch_order, int_layer_order
            )
            select left(l.pk_layer, 24) || lpad(to_hex(f), 12, '0'), l.pk_layer, l.pk_job,
                   format('%%s-layer%%s', lpad(f::text, 4, '0'), l.n),
                   'WAITING', f, f - 1, 1 + (l.n - 1) %% %s
            from new_layer as l, generate_series(1, %s) as f
            """,
            [LAYERS_PER_JOB, FRAMES_PER_LAYER],
        )
        connection.execute(
            """
            update layer_stat as s set int_total_count = %s, int_waiting_count = %s
            from new_layer as l where s.pk_layer = l.pk_layer
            """,
            [FRAMES_PER_LAYER, FRAMES_PER_LAYER],
        )
        connection.execute(
            """
            update job_stat as s set int_waiting_count = t.frames
            from (select pk_job, %s * count(*) as frames from new_layer group by pk_job) as t
            where s.pk_job = t.pk_job
            """,
            [FRAMES_PER_LAYER],
        )
        connection.execute("drop table new_layer")
    return count * FRAMES_PER_LAYER


def add_zones(connection: psycopg.Connection[Any], zones: int) -> None:
    """Shatter the farm by tags: every host gets one of `zones` tags, and of ten layers seven ask for one."""
    connection.execute(
        """
        with numbered as (select pk_host, row_number() over (order by str_name) as n from host)
        update host as h set str_tags = format('%%s zone%%s', h.str_tags, n.n %% %(zones)s)
        from numbered as n where n.pk_host = h.pk_host
        """,
        {"zones": zones},
    )
    connection.execute(
        """
        with numbered as (select pk_layer, row_number() over (order by pk_job, int_dispatch_order) as n from layer)
        update layer as l set str_tags = format('zone%%s', n.n %% %(zones)s)
        from numbered as n where n.pk_layer = l.pk_layer and n.n %% 10 < 7
        """,
        {"zones": zones},
    )

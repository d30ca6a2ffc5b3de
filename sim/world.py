"""Simulated hosts: made from the farm's classes, and made known to the database as real ones are, by boot reports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from planner.units import kib_from_gib, points_from_cores
from sim.farm import HOST_CLASSES, HostClass

BOOT_BATCH = 500
Host = dict[str, Any]  # name, cores (points), mem (KiB, as RQD reports it), gpus, gpu_mem (KiB), tags


def hosts(scale: float = 1.0, classes: Iterable[HostClass] = HOST_CLASSES, prefix: str = "") -> list[Host]:
    """Hosts of each class, at least one of each."""
    return [
        host(f"{prefix}{kind.name}{number:05d}", kind.cores, kind.nominal_gb - kind.reserved_gb)
        for kind in classes
        for number in range(1, max(1, round(kind.count * scale)) + 1)
    ]


def host(name: str, cores: int, memory_gib: float, gpus: int = 0, gpu_memory_gib: float = 0) -> Host:
    return {
        "name": name, "cores": points_from_cores(cores), "mem": kib_from_gib(memory_gib), "gpus": gpus,
        "gpu_mem": kib_from_gib(gpu_memory_gib), "tags": ["general", "64bit", "linux"],
    }  # fmt: skip


def uniform(cores: int, count: int, memory_gib: float = 0.0) -> list[Host]:
    """Equal hosts, with 4 GiB a core if nothing else is said."""
    return [host(f"host{number:04d}", cores, memory_gib or cores * 4) for number in range(1, count + 1)]


def boot(connection: psycopg.Connection[Any], farm: list[Host]) -> None:
    """Have the hosts report their start, without gRPC. Their state is UP and OPEN then."""
    for start in range(0, len(farm), BOOT_BATCH):
        reports = [
            {
                "host": {
                    "name": made["name"], "facility": "local", "num_procs": 1, "cores_per_proc": made["cores"],
                    "total_mem": made["mem"], "free_mem": made["mem"], "total_mcp": kib_from_gib(100),
                    "free_mcp": kib_from_gib(100), "total_swap": kib_from_gib(1), "free_swap": kib_from_gib(1),
                    "num_gpus": made["gpus"], "total_gpu_mem": made["gpu_mem"], "free_gpu_mem": made["gpu_mem"],
                    "tags": made["tags"], "attributes": {"SP_OS": "linux"}, "boot_time": 1,
                },
                "core_info": {"total_cores": made["cores"], "idle_cores": made["cores"]},
            }
            for made in farm[start : start + BOOT_BATCH]
        ]  # fmt: skip
        connection.execute("select maestro.report_startup(%s::jsonb)", [json.dumps(reports)])


def tag(connection: psycopg.Connection[Any], names: list[str], tags: list[str]) -> None:
    """Give the hosts further tags, as an operator does."""
    connection.execute(
        """
        insert into host_tag (pk_host_tag, pk_host, str_tag, str_tag_type, b_constant)
        select gen_random_uuid()::text, h.pk_host, t, 'MANUAL', false
        from host as h, unnest(%s::text[]) as t where h.str_name = any(%s)
        """,
        [tags, names],
    )
    connection.execute(
        """
        update host as h set str_tags = t.tags
        from (
            select g.pk_host, string_agg(g.str_tag, ' ' order by g.str_tag_type, g.str_tag) as tags
            from host_tag as g group by g.pk_host
        ) as t
        where t.pk_host = h.pk_host and h.str_name = any(%s)
        """,
        [names],
    )


def dial(connection: psycopg.Connection[Any], farm: list[Host], targets: list[str]) -> None:
    """Have launchers dial these targets for the hosts, dealt round."""
    connection.execute(
        """
        insert into maestro.host_dial (str_name, target)
        select n, (%s::text[])[1 + (i - 1) %% %s] from unnest(%s::text[]) with ordinality as t (n, i)
        on conflict (str_name) do update set target = excluded.target
        """,
        [targets, len(targets), [made["name"] for made in farm]],
    )


def save(farm: list[Host], path: Path) -> Path:
    """The file that a fake farm reads."""
    path.write_text(json.dumps(farm))
    return path

"""Phases 3 to 5: the farm, the waiting layers and what earlier ticks left behind, as the planner's data.

A fixed number of queries, whatever the number of hosts and layers; those that serve a feature are asked only while
somebody uses it.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional

from phases.session import Row, Session
from planner import tick
from planner.model import Caps, Layer, Settings, State

# Columns of maestro.candidates that differ from layer to layer; `kind` leads to the others.
OWN_COLUMNS = (
    "pk_layer", "pk_job", "pk_show", "pk_folder", "pk_facility", "os", "tags", "priority", "job_started_s",
    "dispatch_order", "waiting", "running", "completed", "cores_min", "cores_max", "mem_min", "gpus_min", "gpu_mem_min",
    "threadable", "selfish", "median_rss", "samples", "job_cores_free", "job_gpus_free", "folder_cores_free",
    "folder_gpus_free", "kind",
)  # fmt: skip
CANDIDATES = """
    with found as materialized (select * from maestro.candidates($1, $2, $3))
    select {columns},
        array_agg(case when cardinality(f.gates) > 0 then array_to_string(f.gates, ';') end) as gates,
        (
            select jsonb_object_agg(k.kind, jsonb_build_array(k.groups, k.misfits, k.misfit_hosts))
            from (select distinct on (g.kind) g.kind, g.groups, g.misfits, g.misfit_hosts from found as g) as k
        ) as kinds
    from found as f
""".format(columns=", ".join("array_agg(f.{0}) as {0}".format(name) for name in OWN_COLUMNS))

HOSTS = "select {} from maestro.snapshot() as h".format(
    ", ".join(
        "array_agg(h.{0}) as {0}".format(name)
        for name in (
            "pk_host", "str_name", "pk_alloc", "pk_facility", "str_tags", "str_os", "int_thread_mode", "int_cores",
            "int_mem", "int_gpus", "int_gpu_mem", "int_cores_idle", "int_mem_idle", "int_gpus_idle",
            "int_gpu_mem_idle", "short_mem",
        )  # fmt: skip
    )
)


class Work(NamedTuple):
    """What waits, and what may be booked of it."""

    rows: List[Dict[str, Any]]
    layers: List[Layer]
    caps: Caps
    closed: Dict[str, str]  # host name -> why it is not in the snapshot; empty unless tags name an unknown host


def knobs(session: Session, values: Dict[str, str]) -> Settings:
    """The planner's settings."""
    names = [name.strip() for name in values["fifo_shows"].split(",") if name.strip()]
    shows = session.rows("select pk_show from public.show where str_name = any($1)", ["text[]"], [names]) if names else ()
    return tick.settings(values, [row["pk_show"] for row in shows])


def hosts(session: Session) -> List[Dict[str, Any]]:
    """Rows of maestro.snapshot."""
    return session.columns(HOSTS)


def work(session: Session, farm: tick.Snapshot, now: str, managed_only: bool) -> Work:
    """Waiting layers, the caps of their owners and their limits. Limits whose reports stopped are named as warnings."""
    found = session.rows(CANDIDATES, ["jsonb", "timestamptz", "boolean"], [json.dumps(farm.groups), now, managed_only])
    rows = _layer_rows(found[0])
    closed: Dict[str, str] = {}
    if any("tags" in row["gates"] for row in rows):
        closed = {row["str_name"]: row["why"] for row in session.rows("select * from maestro.closed_hosts()")}
    limits = session.rows("select * from maestro.limit_headrooms($1)", ["timestamptz"], [now])
    for limit in limits:
        if limit["stale_seconds"] is not None:
            session.warnings.append({
                "what": "limit " + limit["str_name"],
                "message": "no usage report for %d s: the limit is %s"
                % (limit["stale_seconds"], "closed" if limit["closed"] else "open"),
            })  # fmt: skip
    caps = tick.caps(
        rows, session.rows("select * from maestro.show_shares()"), [limit for limit in limits if limit["layers"]]
    )
    return Work(rows, tick.layers(rows, farm, closed), caps, closed)


def _layer_rows(whole: Row) -> List[Dict[str, Any]]:
    """Rows of maestro.candidates from its columns."""
    kinds = {int(kind): shape for kind, shape in json.loads(whole["kinds"] or "{}").items()}
    rows = []
    for values in zip(*(whole[name] or () for name in OWN_COLUMNS), whole["gates"] or ()):
        row = dict(zip(OWN_COLUMNS, values))
        row["groups"], row["misfits"], row["misfit_hosts"] = kinds[row["kind"]]
        row["gates"] = values[-1].split(";") if values[-1] else ()
        rows.append(row)
    return rows


def state(
    session: Session, farm: tick.Snapshot, host_rows: List[Dict[str, Any]], found: Work, settings: Settings, now_s: float
) -> State:
    """What earlier ticks and reports left behind."""
    names = [row["pk_layer"] for row in found.rows if not row["gates"]]
    roomy = _hosts_with_room(farm, found)
    live: Any = ()
    warm: Any = ()
    if roomy and names:
        if settings.locality_enabled or settings.layer_host_max_frac:
            live = session.rows("select * from maestro.live_layers($1, $2)", ["text[]", "text[]"], [roomy, names])
        if settings.locality_enabled and settings.locality_window_frames:
            warm = session.rows(
                "select * from maestro.warm_layers($1, $2, $3)", ["text[]", "text[]", "int"],
                [roomy, names, settings.locality_window_frames],
            )  # fmt: skip
    reservations: Any = ()
    debts: Any = ()
    runs: Any = ()
    if settings.reservations_enabled:
        reservations = session.rows(
            "select pk_host, pk_layer, priority, cores_min, extract(epoch from granted_at)::float8 as granted_at_s"
            " from maestro.reservation"
        )
        debts = session.rows("select pk_layer, blocked_ms from maestro.blocked_debt")
        if reservations:
            runs = session.rows(
                "select pk_layer, int_clock_time_success::float8 / int_frame_success_count as seconds"
                " from public.layer_usage where pk_layer = any($1) and int_frame_success_count > 0",
                ["text[]"], [names],
            )  # fmt: skip
    known = tick.state(
        now_s,
        _elapsed_ms(session, now_s),
        live,
        warm,
        reservations,
        debts,
        runs,
        [row for row in found.rows if row["threadable"]] if settings.memory_sizing else (),
        [row["pk_host"] for row in host_rows if row["short_mem"]],
        found.closed,
    )
    wanted = tick.ready_wanted(known, settings)
    if wanted is None:
        wanted = _hosts_for_grants(farm, found, known)
    if wanted:
        known = tick.with_ready(known, session.rows("select * from maestro.ready_procs($1)", ["text[]"], [wanted]))
    return known


def _elapsed_ms(session: Session, now_s: float) -> int:
    """Since the last tick; a pause of more than a minute counts as one, for nobody saw who was blocked in it."""
    last: Optional[float] = session.value(
        "select (select extract(epoch from started_at)::float8 from maestro.tick where status = 'planned'"
        " order by tick_id desc limit 1) as answer"
    )
    return 0 if last is None else max(0, min(60000, round((now_s - last) * 1000)))


def _hosts_with_room(farm: tick.Snapshot, found: Work) -> List[str]:
    """Hosts on which the smallest waiting frame could fit."""
    open_rows = [row for row in found.rows if not row["gates"]]
    if not open_rows:
        return []
    cores = max(1, min(row["cores_min"] for row in open_rows))
    mem = min(row["mem_min"] for row in open_rows)
    return [host.pk_host for host in farm.hosts if host.idle_cores >= cores and host.idle_mem >= mem]


def _hosts_for_grants(farm: tick.Snapshot, found: Work, known: State) -> List[str]:
    """Held hosts, and those that are large enough for a layer that has blocked time on its account."""
    held = {reservation.pk_host for reservation in known.reservations}
    asks = [(row["cores_min"], row["mem_min"]) for row in found.rows if row["pk_layer"] in known.debts]
    if not asks:
        return sorted(held)
    cores, mem = min(ask[0] for ask in asks), min(ask[1] for ask in asks)
    held.update(host.pk_host for host in farm.hosts if host.cores >= cores and host.mem >= mem)
    return sorted(held)

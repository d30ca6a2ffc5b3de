"""Phases 3 to 5: the farm, the waiting layers and what earlier ticks left behind, as the planner's data.

A fixed number of queries, whatever the number of hosts and layers; those that serve a feature are asked only while
somebody uses it.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from phases.session import Row, Session
from planner import tick
from planner.model import Caps, Layer, Settings, State

# Columns of maestro.candidates that differ from layer to layer; what `kind` determines travels once for all its layers.
LAYER_COLUMNS = (
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
            select json_object_agg(k.kind, json_build_array(k.groups, k.misfits, k.misfit_hosts))
            from (select distinct on (g.kind) g.kind, g.groups, g.misfits, g.misfit_hosts from found as g) as k
        ) as kinds
    from found as f
""".format(columns=", ".join("array_agg(f.{0}) as {0}".format(name) for name in LAYER_COLUMNS))

HOST_COLUMNS = (
    "pk_host", "str_name", "pk_alloc", "pk_facility", "str_tags", "str_os", "int_thread_mode", "int_cores", "int_mem",
    "int_gpus", "int_gpu_mem", "int_cores_idle", "int_mem_idle", "int_gpus_idle", "int_gpu_mem_idle", "short_mem",
    "refused",
)  # fmt: skip
HOSTS = "select {} from maestro.snapshot() as h".format(
    ", ".join("array_agg(h.{0}) as {0}".format(name) for name in HOST_COLUMNS)
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
    if not names:
        return tick.settings(values)
    shows = session.rows("select pk_show from public.show where str_name = any($1)", ["text[]"], [names])
    return tick.settings(values, [row["pk_show"] for row in shows])


def hosts(session: Session) -> List[Dict[str, Any]]:
    """Rows of maestro.snapshot."""
    return session.columns(HOSTS)


def work(session: Session, farm: tick.Snapshot, now: str, managed_only: bool) -> Work:
    """Waiting layers, the caps of their owners and their limits. Limits whose reports stopped are named as warnings."""
    found = session.rows(CANDIDATES, ["jsonb", "timestamptz", "boolean"], [json.dumps(farm.groups), now, managed_only])
    rows = _layer_rows(found[0])
    asks = session.rows("select * from maestro.raised_frames($1)", ["timestamptz"], [now])
    if asks:
        rows = tick.with_asks(rows, asks)
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
    """Rows of maestro.candidates, put together from its columns."""
    kinds = {int(kind): shape for kind, shape in json.loads(whole["kinds"] or "{}").items()}
    rows = []
    for gates, *own in zip(whole["gates"] or (), *(whole[name] or () for name in LAYER_COLUMNS)):
        row = dict(zip(LAYER_COLUMNS, own))
        row["groups"], row["misfits"], row["misfit_hosts"] = kinds[row["kind"]]
        row["gates"] = gates.split(";") if gates else ()
        rows.append(row)
    return rows


def state(
    session: Session, farm: tick.Snapshot, short_mem: List[str], found: Work, settings: Settings, now_s: float
) -> State:
    """What earlier ticks and reports left behind; `short_mem` are hosts (pk_host) short of memory."""
    names = [row["pk_layer"] for row in found.rows if not row["gates"]]
    live, warm = _locality(session, _hosts_with_room(farm, found), set(names), settings)
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
        reservation_rows=reservations,
        debt_rows=debts,
        run_rows=runs,
        memory_rows=found.rows,
        short_mem=short_mem,
        closed=found.closed,
    )._replace(live=live, warm=warm)
    wanted = tick.ready_wanted(known, settings)
    if wanted is None:
        wanted = _hosts_for_grants(farm, found, known)
    if wanted:
        known = tick.with_ready(known, session.rows("select * from maestro.ready_procs($1)", ["text[]"], [wanted]))
    return known


Places = Dict[str, Dict[str, int]]  # pk_layer -> pk_host -> frames


def _locality(session: Session, roomy: List[str], names: Set[str], settings: Settings) -> Tuple[Places, Places]:
    """Which of the layers `names` run on the hosts `roomy`, and which left them how many foreign frames ago."""
    live: Places = {}
    warm: Places = {}
    if not roomy or not names:
        return live, warm
    if settings.locality_enabled or settings.layer_host_max_frac:
        found = session.rows("select * from maestro.live_procs($1)", ["text[]"], [roomy])[0]
        for pk_layer, pk_host in zip(found["layers"] or (), found["hosts"] or ()):
            if pk_layer in names:
                hosts = live.setdefault(pk_layer, {})
                hosts[pk_host] = hosts.get(pk_host, 0) + 1
    if settings.locality_enabled and settings.locality_window_frames:
        found = session.rows(
            "select * from maestro.warm_hosts($1, $2)", ["text[]", "int"], [roomy, settings.locality_window_frames]
        )[0]
        for pk_layer, pk_host, frames in zip(
            found["layers"] or (), found["hosts"] or (), found["foreign_frames"] or ()
        ):
            if pk_layer in names:
                warm.setdefault(pk_layer, {})[pk_host] = frames
    return live, warm


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

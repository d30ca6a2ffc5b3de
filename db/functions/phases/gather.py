"""Phases 3 to 5: the farm, the waiting layers and what earlier ticks left behind, as the planner's data.

A fixed number of queries, whatever the number of hosts and layers; those that serve a feature are asked only while
somebody uses it.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from phases.session import Row, Session
from planner import places, tick
from planner.model import Caps, Layer, Settings, State


class Work(NamedTuple):
    """What waits, and what may be booked of it."""

    columns: Row  # maestro.candidates, with the kinds read from their JSON
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


def hosts(session: Session) -> Row:
    """The columns of maestro.snapshot."""
    return session.arrays("select * from maestro.snapshot()")


def work(session: Session, farm: tick.Snapshot, now: str, managed_only: bool) -> Work:
    """Waiting layers, the caps of their owners and their limits. Limits whose reports stopped are named as warnings."""
    found = session.arrays(
        "select * from maestro.candidates($1, $2, $3)", ["jsonb", "timestamptz", "boolean"],
        [json.dumps(farm.groups), now, managed_only],
    )  # fmt: skip
    found = {**found, "kinds": json.loads(found["kinds"] or "[]")}
    closed: Dict[str, str] = {}
    if any("tags" in kind["gates"] for kind in found["kinds"]):
        closed = {row["str_name"]: row["why"] for row in session.rows("select * from maestro.closed_hosts()")}
    layers = tick.layers(found, farm, closed)
    asks = session.rows("select * from maestro.raised_frames($1)", ["timestamptz"], [now])
    if asks:
        layers = tick.with_asks(layers, asks)
    limits = session.rows("select * from maestro.limit_headrooms($1)", ["timestamptz"], [now])
    for limit in limits:
        if limit["stale_seconds"] is not None:
            session.warnings.append({
                "what": "limit " + limit["str_name"],
                "message": "no usage report for %d s: the limit is %s"
                % (limit["stale_seconds"], "closed" if limit["closed"] else "open"),
            })  # fmt: skip
    caps = tick.caps(
        found, session.rows("select * from maestro.show_shares()"), [limit for limit in limits if limit["layers"]]
    )
    return Work(found, layers, caps, closed)


def state(session: Session, farm: tick.Snapshot, found: Work, settings: Settings, now_s: float) -> State:
    """What earlier ticks and reports left behind."""
    candidates = [layer for layer in found.layers if not layer.gates]
    live, warm = _locality(session, _hosts_with_room(farm, candidates), settings)
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
                ["text[]"], [sorted({layer.pk_layer for layer in candidates})],
            )  # fmt: skip
    known = tick.state(
        now_s,
        _elapsed_ms(session, now_s),
        reservation_rows=reservations,
        debt_rows=debts,
        run_rows=runs,
        memory=found.columns,
        short_mem=farm.short_mem,
        closed=found.closed,
    )._replace(live=live, warm=warm)
    wanted = tick.ready_wanted(known, settings)
    if wanted is None:
        wanted = _hosts_for_grants(farm, found, known)
    if wanted:
        known = tick.with_ready(known, session.rows("select * from maestro.ready_procs($1)", ["text[]"], [wanted]))
    return known


Places = Mapping[str, Mapping[str, int]]  # pk_layer -> pk_host -> frames


def _locality(session: Session, roomy: List[str], settings: Settings) -> Tuple[Places, Places]:
    """Which layers run on the hosts `roomy`, and which left them how many foreign frames ago."""
    live: Places = {}
    warm: Places = {}
    if not roomy:
        return live, warm
    if settings.locality_enabled or settings.layer_host_max_frac:
        found = session.arrays("select * from maestro.live_procs($1)", ["text[]"], [roomy])
        live = places.Live(found["hosts"], found["layers"])
    if settings.locality_enabled and settings.locality_window_frames:
        found = session.arrays(
            "select * from maestro.warm_hosts($1, $2)", ["text[]", "int"], [roomy, settings.locality_window_frames]
        )
        warm = places.warm(found["layers"], found["hosts"], found["foreign_frames"])
    return live, warm


def _elapsed_ms(session: Session, now_s: float) -> int:
    """Since the last tick; a pause of more than a minute counts as one, for nobody saw who was blocked in it."""
    last: Optional[float] = session.value(
        "select (select extract(epoch from started_at)::float8 from maestro.tick where status = 'planned'"
        " order by tick_id desc limit 1) as answer"
    )
    return 0 if last is None else max(0, min(60000, round((now_s - last) * 1000)))


def _hosts_with_room(farm: tick.Snapshot, candidates: List[Layer]) -> List[str]:
    """Hosts on which the smallest waiting frame could fit."""
    if not candidates:
        return []
    cores = max(1, min(layer.cores_min for layer in candidates))
    mem = min(layer.mem_min for layer in candidates)
    return [host.pk_host for host in farm.hosts if host.idle_cores >= cores and host.idle_mem >= mem]


def _hosts_for_grants(farm: tick.Snapshot, found: Work, known: State) -> List[str]:
    """Held hosts, and those that are large enough for a layer that has blocked time on its account."""
    held = {reservation.pk_host for reservation in known.reservations}
    asks = [(layer.cores_min, layer.mem_min) for layer in found.layers if layer.pk_layer in known.debts]
    if not asks:
        return sorted(held)
    cores, mem = min(ask[0] for ask in asks), min(ask[1] for ask in asks)
    held.update(host.pk_host for host in farm.hosts if host.cores >= cores and host.mem >= mem)
    return sorted(held)

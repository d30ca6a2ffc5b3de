"""A tick's rows in, its plan out: the seam between SQL rows and the planner's data."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from planner.group import GroupKey, group_hosts
from planner.model import (
    CACHE_WARM,
    COLD,
    LIVE_WARM,
    Busy,
    Caps,
    Host,
    Layer,
    Limit,
    Peaks,
    Plan,
    Reason,
    Reservation,
    Settings,
    Share,
    State,
    Terms,
    Wait,
)
from planner.pins import Pins
from planner.plan import NOTHING_KNOWN
from planner.plan import plan as make_plan
from planner.wait import BUCKETS as BUCKETS
from planner.wait import FLOWING

Row = Mapping[str, Any]
BOOKED = "booked"  # the outcome of a slot that the commit took

FAILED = "failed for memory: "  # goes before the reasons of frames that ask for more than their layer


class Snapshot(NamedTuple):
    """The hosts of a tick and the groups that they form."""

    hosts: List[Host]
    groups: List[Dict[str, Any]]  # rows for the candidate query; id is the place in this list
    keys: List[GroupKey]


class Decision(NamedTuple):
    """A plan as the parallel arrays that commit_plan and publish take, positions counting from 1."""

    layers: List[str]  # distinct keys
    hosts: List[str]  # distinct keys
    slot_layer: List[int]
    slot_host: List[int]
    slot_cores: List[int]
    slot_mem: List[int]
    slot_gpus: List[int]
    slot_gpu_mem: List[int]
    slot_terms: List[Terms]
    slot_warmth: List[str]
    slot_backfill: List[bool]
    asks: List[int]  # by layer: model.Layer.ask


class PlacementRows(NamedTuple):
    """One row a (layer, host, backfill, outcome), as parallel lists; positions in the decision's keys, from 1."""

    layer: List[int]
    host: List[int]
    frames: List[int]
    terms: Tuple[List[float], ...]  # of the first frame: a list a term, in the order of model.Terms
    warmth: List[str]
    backfill: List[bool]
    outcome: List[str]


def snapshot(rows: Sequence[Row]) -> Snapshot:
    """Hosts (rows of maestro.snapshot, in its order) and their groups."""
    specs = [
        (
            row["str_name"], row["pk_alloc"], row["pk_facility"], row["str_tags"], row["str_os"],
            row["int_gpus"] > 0, row["int_thread_mode"],
        )
        for row in rows
    ]  # fmt: skip
    keys, of_host = group_hosts(specs)
    hosts = [
        Host(
            index, row["pk_host"], row["str_name"], of_host[index], row["pk_alloc"], row["int_thread_mode"],
            (row["int_cores"], row["int_mem"], row["int_gpus"], row["int_gpu_mem"]),
            (row["int_cores_idle"], row["int_mem_idle"], row["int_gpus_idle"], row["int_gpu_mem_idle"]),
            row.get("refused", 0),
        )
        for index, row in enumerate(rows)
    ]  # fmt: skip
    counts = [0] * len(keys)
    for number in of_host:
        counts[number] += 1
    groups = [
        {
            "id": number, "pk_alloc": key.pk_alloc, "pk_facility": key.pk_facility, "tags": key.tags, "os": key.os,
            "thread_all": key.thread_all, "hosts": counts[number],
        }
        for number, key in enumerate(keys)
    ]  # fmt: skip
    return Snapshot(hosts, groups, keys)


def layers(rows: Sequence[Row], farm: Snapshot, closed: Mapping[str, str] = {}) -> List[Layer]:
    """Layers (rows of maestro.candidates, in its order), with tags that name hosts resolved.

    Rows may lack `running`, `selfish`, `job_started_s`, `dispatch_order`; `misfits` and `misfit_hosts` (parallel lists:
    each gate that rules out some hosts, and how many of them); and `pk_facility` and `os`, which check what pins name.
    `closed`: host name -> why it is not in the snapshot ('host down', 'host locked', …).
    """
    pins = Pins(farm.hosts, farm.keys, closed)
    group_sets: Dict[Tuple[int, ...], FrozenSet[int]] = {}  # equal sets become one object: pools are found by them
    found = []
    for index, row in enumerate(rows):
        key = tuple(row["groups"])
        groups = group_sets.setdefault(key, frozenset(key))
        gates = tuple(row["gates"])
        misfits = tuple(zip(row.get("misfits") or (), row.get("misfit_hosts") or ()))
        pinned, gates, misfits = pins.apply(row, gates, misfits)
        found.append(
            Layer(
                index, row["pk_layer"], row["pk_job"], row["pk_show"], row["pk_folder"], row["priority"],
                row["waiting"], row["cores_min"], row["cores_max"], row["mem_min"], row["gpus_min"],
                row["gpu_mem_min"], row["threadable"], groups, pinned, gates, row.get("running", 0),
                row.get("selfish", False), row.get("job_started_s", 0.0), row.get("dispatch_order", 0), misfits,
                row.get("ask", 0),
            )  # fmt: skip
        )
    return found


def with_asks(rows: Sequence[Dict[str, Any]], asks: Sequence[Row]) -> List[Dict[str, Any]]:
    """Candidate rows (of `layers`) in which frames that ask for memory of their own stand in rows of their own, each
    after that of the layer's other frames.

    `asks` (rows of maestro.raised_frames): pk_layer, mem (KiB) and how many frames ask for so much.
    """
    by_layer: Dict[str, List[Row]] = {}
    for ask in asks:
        by_layer.setdefault(ask["pk_layer"], []).append(ask)
    found: List[Dict[str, Any]] = []
    for row in rows:
        own = by_layer.get(row["pk_layer"], [])
        others = row["waiting"] - sum(ask["frames"] for ask in own)
        if others > 0:
            found.append({**row, "waiting": others} if own else row)
        found.extend({**row, "waiting": ask["frames"], "mem_min": ask["mem"], "ask": ask["mem"]} for ask in own)
    return found


def caps(layer_rows: Sequence[Row], show_rows: Sequence[Row], limit_rows: Sequence[Row]) -> Caps:
    """Caps from the candidate rows (job, folder), the subscriptions and the limits that block now.

    `show_rows`: pk_show, pk_alloc, size, burst, cores. `limit_rows`: pk_limit_record, str_name, per_host, max_value,
    soft_value, used, holders (list of pk_host; None or empty if none), layers (pk_layer of waiting layers bound to it);
    enforced and fresh ones only, and stale ones that fail closed with max_value 0 (and no holders).
    """
    jobs: Dict[str, Tuple[int, int]] = {}
    folders: Dict[str, Tuple[int, int]] = {}
    no_cap = 1 << 62
    for row in layer_rows:
        jobs[row["pk_job"]] = (row["job_cores_free"], row["job_gpus_free"])
        cores, gpus = row["folder_cores_free"], row["folder_gpus_free"]
        if cores is not None or gpus is not None:
            folders[row["pk_folder"]] = (no_cap if cores is None else cores, no_cap if gpus is None else gpus)
    shows = {(row["pk_show"], row["pk_alloc"]): Share(row["size"], row["burst"], row["cores"]) for row in show_rows}
    limits: Dict[str, Limit] = {}
    bound: Dict[str, Tuple[str, ...]] = {}
    for row in limit_rows:
        key = row["pk_limit_record"]
        limits[key] = Limit(
            row["str_name"], row["per_host"], row["max_value"], row["soft_value"], row["used"],
            frozenset(row["holders"] or ()),
        )  # fmt: skip
        for pk_layer in row["layers"] or ():
            bound[pk_layer] = (*bound.get(pk_layer, ()), key)
    return Caps(jobs, folders, shows, limits, bound)


def state(
    now_s: float,
    elapsed_ms: int = 0,
    live_rows: Sequence[Row] = (),
    warm_rows: Sequence[Row] = (),
    reservation_rows: Sequence[Row] = (),
    debt_rows: Sequence[Row] = (),
    run_rows: Sequence[Row] = (),
    memory_rows: Sequence[Row] = (),
    short_mem: Sequence[str] = (),
    closed: Mapping[str, str] = {},
) -> State:
    """State but for `ready` (see ready_wanted and with_ready).

    `live_rows`: a row a layer: pk_layer, hosts (list of pk_host), frames (list). Only layers with waiting frames, only
    hosts of the snapshot; hosts without an idle core may be left out.
    `warm_rows`: a row a layer: pk_layer, hosts, foreign_frames (lists); only those below locality_window_frames.
    `reservation_rows`: pk_host, pk_layer, priority, cores_min, granted_at_s; all there are.
    `debt_rows`: pk_layer, blocked_ms. `run_rows`: pk_layer, seconds (mean of done frames; absent without history).
    `memory_rows`: pk_layer, median_rss (KiB or None), samples, completed; only waiting threadable layers.
    """
    return State(
        now_s=now_s,
        elapsed_ms=elapsed_ms,
        live={row["pk_layer"]: dict(zip(row["hosts"], row["frames"])) for row in live_rows},
        warm={row["pk_layer"]: dict(zip(row["hosts"], row["foreign_frames"])) for row in warm_rows},
        reservations=tuple(
            Reservation(row["pk_host"], row["pk_layer"], row["priority"], row["cores_min"], row["granted_at_s"])
            for row in reservation_rows
        ),
        debts={row["pk_layer"]: row["blocked_ms"] for row in debt_rows},
        run_seconds={row["pk_layer"]: row["seconds"] for row in run_rows},
        peaks={row["pk_layer"]: Peaks(row["median_rss"] or 0, row["samples"]) for row in memory_rows},
        completed={row["pk_layer"]: row["completed"] for row in memory_rows},
        short_mem=frozenset(short_mem),
        closed=dict(closed),
    )


def ready_wanted(known: State, knobs: Settings) -> Optional[List[str]]:
    """The hosts (pk_host, sorted) whose running procs the plan wants to know: held ones; None: all, for new grants."""
    if not knobs.reservations_enabled:
        return []
    due = knobs.reservation_block_seconds * 1000 - known.elapsed_ms
    owners = {held.pk_layer for held in known.reservations}
    # Owners owe for as long as they wait: their further hosts are chosen by what is idle.
    if len(owners) < knobs.reservation_max_grantees and any(
        blocked >= due and pk_layer not in owners for pk_layer, blocked in known.debts.items()
    ):
        return None
    return sorted({held.pk_host for held in known.reservations})


def with_ready(known: State, rows: Sequence[Row]) -> State:
    """The state with the running procs of hosts.

    `rows`: a row a host: pk_host and the lists end_s (None: unknown), cores, mem, gpus, gpu_mem, an element a proc.
    """
    unknown = float("inf")
    return known._replace(
        ready={
            row["pk_host"]: tuple(
                Busy(unknown if end is None else end, cores, mem, gpus, gpu_mem)
                for end, cores, mem, gpus, gpu_mem in zip(
                    row["end_s"], row["cores"], row["mem"], row["gpus"], row["gpu_mem"]
                )
            )
            for row in rows
        }
    )


def settings(values: Mapping[str, str], fifo_shows: Sequence[str] = ()) -> Settings:
    """The planner's settings from maestro.setting (name -> text); absent ones keep their defaults.

    `fifo_shows`: pk_show of the shows that the setting of that name lists.
    """
    default = Settings()
    named = {
        "weight_cores": "score_weight_cores",
        "weight_mem": "score_weight_mem",
        "weight_gpus": "score_weight_gpus",
        "weight_gpu_mem": "score_weight_gpu_mem",
    }
    read: Dict[str, Any] = {}
    for field, value in default._asdict().items():
        text = values.get(named.get(field, field))
        if text is None or field == "fifo_shows":
            continue
        read[field] = text.lower() in ("true", "t", "on", "yes", "1") if isinstance(value, bool) else type(value)(text)
    return default._replace(fifo_shows=frozenset(fifo_shows), **read)


def plan(
    hosts: List[Host],
    found: List[Layer],
    caps_left: Caps,
    knobs: Settings,
    seed: int,
    out_of_time: Callable[[], bool],
    known: State = NOTHING_KNOWN,
) -> Plan:
    """As planner.plan.plan."""
    return make_plan(hosts, found, caps_left, knobs, seed, out_of_time, known)


def decision(planned: Plan, found: List[Layer], hosts: List[Host]) -> Decision:
    """The plan's placements as arrays."""
    if not planned.placements:
        return Decision([], [], [], [], [], [], [], [], [], [], [], [])
    layers, places, asks, _, terms, warmth, backfill = zip(*planned.placements)
    cores, mem, gpus, gpu_mem = zip(*asks)
    layer_keys = {order: position for position, order in enumerate(dict.fromkeys(layers), 1)}
    host_keys = {index: position for position, index in enumerate(dict.fromkeys(places), 1)}
    return Decision(
        [found[order].pk_layer for order in layer_keys],
        [hosts[index].pk_host for index in host_keys],
        [layer_keys[order] for order in layers],
        [host_keys[index] for index in places],
        list(cores),
        list(mem),
        list(gpus),
        list(gpu_mem),
        list(terms),
        list(warmth),
        list(backfill),
        [found[order].ask for order in layer_keys],
    )


def part(whole: Decision, slots: Sequence[int]) -> Decision:
    """The decision cut to some slots (numbers from 0); keys stay, so positions hold."""
    columns: List[Any] = [[column[slot] for slot in slots] for column in whole[2:-1]]
    columns.append(whole.asks)
    return Decision(whole.layers, whole.hosts, *columns)


def halves(whole: Decision, slots: Sequence[int]) -> List[List[int]]:
    """Slots split in two by layer, so that a layer whose commit raises ends alone; empty if they are of one layer."""
    kinds = sorted({whole.slot_layer[slot] for slot in slots})
    if len(kinds) < 2:
        return []
    first = set(kinds[: len(kinds) // 2])
    return [
        [slot for slot in slots if whole.slot_layer[slot] in first],
        [slot for slot in slots if whole.slot_layer[slot] not in first],
    ]


def placement_rows(whole: Decision, lost: Mapping[int, str]) -> PlacementRows:
    """What became of the decision. `lost` gives the outcome of the slots (from 0) that were not booked."""
    outcomes = [BOOKED] * len(whole.slot_layer)
    for slot, outcome in lost.items():
        outcomes[slot] = outcome
    kinds = list(zip(whole.slot_layer, whole.slot_host, whole.slot_backfill, outcomes))
    frames = Counter(kinds)
    # Read backwards, so that the slot of a kind's first frame is the one that stays.
    first = dict(zip(reversed(kinds), range(len(kinds) - 1, -1, -1)))
    slots = [first[kind] for kind in frames]
    return PlacementRows(
        [kind[0] for kind in frames],
        [kind[1] for kind in frames],
        list(frames.values()),
        tuple(map(list, zip(*(whole.slot_terms[slot] for slot in slots)))),
        [whole.slot_warmth[slot] for slot in slots],
        [kind[2] for kind in frames],
        [kind[3] for kind in frames],
    )


def booked_by_warmth(whole: Decision) -> Dict[str, int]:
    """Planned frames by kind of locality, counted at the decision."""
    return {kind: whole.slot_warmth.count(kind) for kind in (LIVE_WARM, CACHE_WARM, COLD)}


def odometer(whole: Decision, lost: Mapping[int, str]) -> Dict[str, int]:
    """Frames booked, by pk_host: what the hosts' odometers go forward by."""
    counts = Counter(host for slot, host in enumerate(whole.slot_host) if slot not in lost)
    return {whole.hosts[host - 1]: frames for host, frames in counts.items()}


def plan_zero(
    before: Mapping[str, int], whole: Decision, lost: Mapping[int, str], knobs: Settings
) -> Tuple[Dict[str, int], List[Dict[str, str]]]:
    """Layers whose every planned frame was dropped: how many ticks in a row (pk_layer -> ticks), and warnings.

    `before` is what the last tick returned; a layer that was not planned keeps its count. A layer is named when its
    count reaches plan_zero_warn_ticks, and again each time as many ticks later.
    """
    landed = {whole.layers[layer - 1] for slot, layer in enumerate(whole.slot_layer) if slot not in lost}
    after = dict(before)
    warnings = []
    for pk_layer in dict.fromkeys(whole.layers):
        if pk_layer in landed:
            after.pop(pk_layer, None)
            continue
        after[pk_layer] = after.get(pk_layer, 0) + 1
        if knobs.plan_zero_warn_ticks and after[pk_layer] % knobs.plan_zero_warn_ticks == 0:
            message = "planned in %d ticks, booked in none: the commit refuses what the plan allows" % after[pk_layer]
            warnings.append({"what": "layer " + pk_layer, "message": message})
    return after, warnings


def wait_rows(planned: Plan, found: List[Layer]) -> Tuple[List[str], List[int], List[str], List[str]]:
    """Lists of pk_layer and the kind of its wait (a position, from 1, in the next two), and by kind bucket and reasons.

    Reasons are JSON, a list of {reason, hosts}. Layers are many, kinds of waits few. A layer is one row: frames with an
    ask of their own add their reasons to those of its others.
    """
    waits: Dict[str, Wait] = {}
    for index, wait in planned.waits.items():
        layer = found[index]
        if layer.ask and wait.reason != FLOWING:
            asking = tuple(Reason(FAILED + reason.reason, reason.hosts) for reason in wait.reasons)
            first = waits.get(layer.pk_layer)
            wait = Wait(first.reason, first.reasons + asking) if first else Wait(wait.reason, asking)
            waits[layer.pk_layer] = wait
        else:
            waits.setdefault(layer.pk_layer, wait)
    numbers: Dict[Wait, int] = {}
    kinds = [numbers.setdefault(wait, len(numbers) + 1) for wait in waits.values()]
    return (
        list(waits),
        kinds,
        [wait.reason for wait in numbers],
        [json.dumps([reason._asdict() for reason in wait.reasons]) for wait in numbers],
    )


def waiting(planned: Plan, found: List[Layer]) -> Dict[str, int]:
    """Frames left waiting, by bucket."""
    placed: Dict[int, int] = {}
    for placement in planned.placements:
        placed[placement.layer] = placed.get(placement.layer, 0) + 1
    counts: Dict[str, int] = {}
    for index, wait in planned.waits.items():
        counts[wait.reason] = counts.get(wait.reason, 0) + found[index].waiting - placed.get(index, 0)
    return counts

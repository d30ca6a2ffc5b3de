"""A tick's rows in, its plan out: the seam between SQL rows and the planner's data."""

from __future__ import annotations

import json
from collections import Counter
from itertools import repeat
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

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
    short_mem: List[str]  # pk_host of those that report less free memory than their reserve


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


def snapshot(found: Row) -> Snapshot:
    """Hosts (the columns of maestro.snapshot, in its order) and their groups."""
    keys, of_host = group_hosts(
        zip(
            found["str_name"], found["pk_alloc"], found["pk_facility"], found["str_tags"], found["str_os"],
            found["int_gpus"], found["int_thread_mode"],
        )
    )  # fmt: skip
    totals = zip(found["int_cores"], found["int_mem"], found["int_gpus"], found["int_gpu_mem"])
    idle = zip(
        found["int_cores_idle"], found["int_mem_idle"], found["int_gpus_idle"], found["int_gpu_mem_idle"]
    )  # fmt: skip
    hosts = list(
        map(
            Host, range(len(of_host)), found["pk_host"], found["str_name"], of_host, found["pk_alloc"],
            found["int_thread_mode"], totals, idle, found["refused"],
        )
    )  # fmt: skip
    counts = Counter(of_host)
    groups = [
        {
            "id": number, "pk_alloc": key.pk_alloc, "pk_facility": key.pk_facility, "tags": key.tags, "os": key.os,
            "thread_all": key.thread_all, "hosts": counts[number],
        }
        for number, key in enumerate(keys)
    ]  # fmt: skip
    short_mem = [pk_host for pk_host, short in zip(found["pk_host"], found["short_mem"]) if short]
    return Snapshot(hosts, groups, keys, short_mem)


def layers(found: Row, farm: Snapshot, closed: Mapping[str, str] = {}) -> List[Layer]:
    """Layers (the columns of maestro.candidates, in its order, kinds read from JSON), with tags that name hosts
    resolved.

    `closed`: host name -> why it is not in the snapshot ('host down', 'host locked', …).
    """
    if not found["pk_layer"]:
        return []
    pins = Pins(farm.hosts, farm.keys, closed)
    sets: Dict[Tuple[int, ...], FrozenSet[int]] = {}  # equal sets become one object: pools are found by them
    # What tags and gates come to is the same for layers of one kind and gates.
    places: Dict[Tuple[int, Optional[str]], Tuple[Any, ...]] = {}
    of_layer = []
    for at in zip(found["kind"], found["gates"]):
        place = places.get(at)
        if place is None:
            kind = found["kinds"][at[0] - 1]
            key = tuple(kind["groups"])
            gates = (at[1].split(";") if at[1] else []) + kind["gates"]
            verdict = pins.apply(kind, tuple(gates), tuple(zip(kind["misfits"], kind["misfit_hosts"])))
            places[at] = place = (kind["threadable"], sets.setdefault(key, frozenset(key)), *verdict)
        of_layer.append(place)
    threadable, groups, pinned, all_gates, misfits = zip(*of_layer)

    def of_job(name: str) -> Iterator[Any]:
        return map([None, *found[name]].__getitem__, found["job"])  # jobs count from 1

    made: Dict[str, Iterable[Any]] = {
        "order": range(len(of_layer)), "threadable": threadable, "groups": groups, "pinned": pinned, "gates": all_gates,
        "misfits": misfits, "pk_job": of_job("job_key"), "pk_show": of_job("job_show"),
        "pk_folder": of_job("job_folder"), "priority": of_job("job_priority"),
        "job_started_s": of_job("job_started_s"), "ask": repeat(0),
    }  # fmt: skip
    columns = (made[field] if field in made else found[field] for field in Layer._fields)
    return list(map(Layer._make, zip(*columns)))


def with_asks(found: Sequence[Layer], asks: Sequence[Row]) -> List[Layer]:
    """Layers in which frames that ask for memory of their own stand as layers of their own, each after that of the
    layer's other frames.

    `asks` (rows of maestro.raised_frames): pk_layer, mem (KiB) and how many frames ask for so much.
    """
    by_layer: Dict[str, List[Row]] = {}
    for ask in asks:
        by_layer.setdefault(ask["pk_layer"], []).append(ask)
    parts: List[Layer] = []
    for layer in found:
        own = by_layer.get(layer.pk_layer, ())
        others = layer.waiting - sum(ask["frames"] for ask in own)
        if others > 0:
            parts.append(layer._replace(waiting=others))
        parts.extend(layer._replace(waiting=ask["frames"], mem_min=ask["mem"], ask=ask["mem"]) for ask in own)
    return [part._replace(order=order) for order, part in enumerate(parts)]


def caps(found: Row, show_rows: Sequence[Row], limit_rows: Sequence[Row]) -> Caps:
    """Caps from the candidates' jobs and folders, the subscriptions and the limits that block now.

    `show_rows`: pk_show, pk_alloc, size, burst, cores. `limit_rows`: pk_limit_record, str_name, per_host, max_value,
    soft_value, used, holders (list of pk_host; None or empty if none), layers (pk_layer of waiting layers bound to it);
    enforced and fresh ones only, and stale ones that fail closed with max_value 0 (and no holders).
    """
    no_cap = 1 << 62
    jobs = dict(zip(found["job_key"], zip(found["job_cores_free"], found["job_gpus_free"])))
    folders: Dict[str, Tuple[int, int]] = {}
    for pk_folder, cores, gpus in zip(found["job_folder"], found["folder_cores_free"], found["folder_gpus_free"]):
        if cores is not None or gpus is not None:
            folders[pk_folder] = (no_cap if cores is None else cores, no_cap if gpus is None else gpus)
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
    elapsed_ms: int,
    memory: Row,
    reservation_rows: Sequence[Row] = (),
    debt_rows: Sequence[Row] = (),
    run_rows: Sequence[Row] = (),
    short_mem: Sequence[str] = (),
    closed: Mapping[str, str] = {},
) -> State:
    """State but for `live`, `warm` and `ready` (see ready_wanted and with_ready).

    `memory`: the columns pk_layer, median_rss (KiB), samples (0: none) and completed of maestro.candidates.
    `reservation_rows`: pk_host, pk_layer, priority, cores_min, granted_at_s; all there are.
    `debt_rows`: pk_layer, blocked_ms. `run_rows`: pk_layer, seconds (mean of done frames; absent without history).
    """
    seen = zip(memory["pk_layer"], memory["median_rss"], memory["samples"])
    return State(
        now_s=now_s,
        elapsed_ms=elapsed_ms,
        reservations=tuple(
            Reservation(row["pk_host"], row["pk_layer"], row["priority"], row["cores_min"], row["granted_at_s"])
            for row in reservation_rows
        ),
        debts={row["pk_layer"]: row["blocked_ms"] for row in debt_rows},
        run_seconds={row["pk_layer"]: row["seconds"] for row in run_rows},
        peaks={pk_layer: Peaks(median_rss, samples) for pk_layer, median_rss, samples in seen if samples},
        completed=dict(zip(memory["pk_layer"], memory["completed"])),
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
        if not layer.ask:
            waits[layer.pk_layer] = wait  # a layer's other frames come before those that ask
        elif wait.reason != FLOWING:
            asking = tuple(Reason(FAILED + reason.reason, reason.hosts) for reason in wait.reasons)
            first = waits.get(layer.pk_layer)
            wait = Wait(first.reason, first.reasons + asking) if first else Wait(wait.reason, asking)
            waits[layer.pk_layer] = wait
        else:
            waits.setdefault(layer.pk_layer, wait)
    numbers: Dict[Wait, int] = {}
    # Most equal waits are one object, and a wait takes long to compare.
    known = {id(wait): wait for wait in waits.values()}
    by_id = {key: numbers.setdefault(wait, len(numbers) + 1) for key, wait in known.items()}
    kinds = [by_id[id(wait)] for wait in waits.values()]
    return (
        list(waits),
        kinds,
        [wait.reason for wait in numbers],
        [json.dumps([{"reason": name, "hosts": hosts} for name, hosts in wait.reasons]) for wait in numbers],
    )


def waiting(planned: Plan, found: List[Layer]) -> Dict[str, int]:
    """Frames left waiting, by bucket."""
    placed = Counter(placement.layer for placement in planned.placements)
    counts: Dict[str, int] = {}
    for index, wait in planned.waits.items():
        counts[wait.reason] = counts.get(wait.reason, 0) + found[index].waiting - placed.get(index, 0)
    return counts

"""A tick's rows in, its plan out: the seam between SQL rows and the planner's data."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from planner.group import Pins, group_hosts
from planner.model import Caps, Host, Layer, Plan, Settings
from planner.place import place
from planner.reserve import reserve
from planner.wait import BUCKETS as BUCKETS

Row = Mapping[str, Any]


class Snapshot(NamedTuple):
    """The hosts of a tick and the groups that they form."""

    hosts: List[Host]
    groups: List[Dict[str, Any]]  # rows for the candidate query; id is the place in this list


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
    slot_score: List[float]


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
        )
        for index, row in enumerate(rows)
    ]  # fmt: skip
    groups = [
        {
            "id": number, "pk_alloc": key.pk_alloc, "pk_facility": key.pk_facility, "tags": key.tags, "os": key.os,
            "thread_all": key.thread_all,
        }
        for number, key in enumerate(keys)
    ]  # fmt: skip
    return Snapshot(hosts, groups)


def layers(rows: Sequence[Row], hosts: List[Host]) -> List[Layer]:
    """Layers (rows of maestro.candidates, in its order), with tags that name hosts resolved."""
    pins = Pins([host.name for host in hosts])
    group_sets: Dict[Tuple[int, ...], FrozenSet[int]] = {}  # equal sets become one object: pools are found by them
    pin_sets: Dict[str, Optional[FrozenSet[int]]] = {}
    found = []
    for index, row in enumerate(rows):
        tags = row["tags"]
        if tags not in pin_sets:
            pin_sets[tags] = frozenset(pins.resolve(tags)) or None
        pinned = pin_sets[tags]
        key = tuple(row["groups"])
        groups = group_sets.setdefault(key, frozenset(key))
        # A pin's tags match no group, since a host's own name is no tag of its group.
        gates = tuple(gate for gate in row["gates"] if not (pinned and gate == "tags"))
        found.append(
            Layer(
                index, row["pk_layer"], row["pk_job"], row["pk_show"], row["pk_folder"], row["priority"],
                row["waiting"], row["cores_min"], row["cores_max"], row["mem_min"], row["gpus_min"],
                row["gpu_mem_min"], row["threadable"], groups, pinned, gates,
            )  # fmt: skip
        )
    return found


def caps(layer_rows: Sequence[Row], show_rows: Sequence[Row], limit_rows: Sequence[Row]) -> Caps:
    """Caps from the candidate rows (job, folder), maestro.show_headrooms and maestro.limit_headrooms."""
    jobs: Dict[str, Tuple[int, int]] = {}
    folders: Dict[str, Tuple[int, int]] = {}
    no_cap = 1 << 62
    for row in layer_rows:
        jobs[row["pk_job"]] = (row["job_cores_free"], row["job_gpus_free"])
        cores, gpus = row["folder_cores_free"], row["folder_gpus_free"]
        if cores is not None or gpus is not None:
            folders[row["pk_folder"]] = (no_cap if cores is None else cores, no_cap if gpus is None else gpus)
    shows = {(row["pk_show"], row["pk_alloc"]): row["cores_free"] for row in show_rows}
    limits = {row["str_name"]: row["frames_free"] for row in limit_rows}
    bound: Dict[str, Tuple[str, ...]] = {}
    for row in limit_rows:
        for pk_layer in row["layers"]:
            bound[pk_layer] = (*bound.get(pk_layer, ()), row["str_name"])
    return Caps(jobs, folders, shows, limits, bound)


def settings(values: Mapping[str, str]) -> Settings:
    """The planner's settings from maestro.setting (name -> text)."""
    return Settings(
        weight_cores=float(values["score_weight_cores"]),
        weight_mem=float(values["score_weight_mem"]),
        weight_gpus=float(values["score_weight_gpus"]),
        weight_gpu_mem=float(values["score_weight_gpu_mem"]),
        layer_candidates_per_group_max=int(values["layer_candidates_per_group_max"]),
        job_frame_dispatch_max=int(values["job_frame_dispatch_max"]),
        host_frame_dispatch_max=int(values["host_frame_dispatch_max"]),
    )


def plan(
    hosts: List[Host], found: List[Layer], caps_left: Caps, knobs: Settings, seed: int, out_of_time: Callable[[], bool]
) -> Plan:
    """Place, then reserve for what stayed blocked."""
    placed = place(hosts, found, caps_left, knobs, seed, out_of_time)
    return reserve(hosts, found, placed)


def decision(planned: Plan, found: List[Layer], hosts: List[Host]) -> Decision:
    """The plan's placements as arrays."""
    layer_keys: Dict[int, int] = {}
    host_keys: Dict[int, int] = {}
    slot_layer = [layer_keys.setdefault(p.layer, len(layer_keys) + 1) for p in planned.placements]
    slot_host = [host_keys.setdefault(p.host, len(host_keys) + 1) for p in planned.placements]
    asks = [p.ask for p in planned.placements]
    return Decision(
        [found[index].pk_layer for index in layer_keys],
        [hosts[index].pk_host for index in host_keys],
        slot_layer,
        slot_host,
        [ask.cores for ask in asks],
        [ask.mem for ask in asks],
        [ask.gpus for ask in asks],
        [ask.gpu_mem for ask in asks],
        [p.score for p in planned.placements],
    )


def part(whole: Decision, slots: Sequence[int]) -> Decision:
    """The decision cut to some slots (numbers from 0); keys stay, so positions hold."""
    return Decision(
        whole.layers,
        whole.hosts,
        [whole.slot_layer[slot] for slot in slots],
        [whole.slot_host[slot] for slot in slots],
        [whole.slot_cores[slot] for slot in slots],
        [whole.slot_mem[slot] for slot in slots],
        [whole.slot_gpus[slot] for slot in slots],
        [whole.slot_gpu_mem[slot] for slot in slots],
        [whole.slot_score[slot] for slot in slots],
    )


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


def placement_rows(
    whole: Decision, lost: Mapping[int, str]
) -> Tuple[List[int], List[int], List[int], List[float], List[str]]:
    """One row a (layer, host, outcome), as parallel lists: positions of layer and host, frames, first score, outcome.

    `lost` gives the outcome of the slots (from 0) that were not booked.
    """
    frames: Dict[Tuple[int, int, str], int] = {}
    scores: Dict[Tuple[int, int, str], float] = {}
    for slot, (layer, host) in enumerate(zip(whole.slot_layer, whole.slot_host)):
        key = (layer, host, lost.get(slot, "booked"))
        frames[key] = frames.get(key, 0) + 1
        scores.setdefault(key, whole.slot_score[slot])
    keys = list(frames)
    return (
        [key[0] for key in keys], [key[1] for key in keys], list(frames.values()), list(scores.values()),
        [key[2] for key in keys],
    )  # fmt: skip


def waiting(planned: Plan, found: List[Layer]) -> Dict[str, int]:
    """Frames left waiting, by bucket."""
    placed: Dict[int, int] = {}
    for placement in planned.placements:
        placed[placement.layer] = placed.get(placement.layer, 0) + 1
    counts: Dict[str, int] = {}
    for index, wait in planned.waits.items():
        counts[wait.reason] = counts.get(wait.reason, 0) + found[index].waiting - placed.get(index, 0)
    return counts

"""Plain data of a tick: hosts, layers, settings in; placements and reasons out.

Units everywhere: core points (100 = one core), KiB of memory, whole gpus, KiB of gpu memory.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple

THREAD_AUTO, THREAD_ALL, THREAD_VARIABLE = 0, 1, 2


class Host:
    """One bookable host. `idle_*` fall as the tick places frames; everything else stays."""

    __slots__ = (
        "cores", "frames", "gpu_mem", "gpus", "group", "idle_cores", "idle_gpu_mem", "idle_gpus", "idle_mem",
        "index", "mem", "name", "pk_alloc", "pk_host", "thread_mode", "version",
    )  # fmt: skip

    def __init__(
        self, index: int, pk_host: str, name: str, group: int, pk_alloc: str, thread_mode: int,
        total: Tuple[int, int, int, int], idle: Tuple[int, int, int, int],
    ) -> None:  # fmt: skip
        """`index`: place in the snapshot, which settles ties. total and idle: (cores, mem, gpus, gpu mem)."""
        self.index = index
        self.pk_host = pk_host
        self.name = name
        self.group = group
        self.pk_alloc = pk_alloc
        self.thread_mode = thread_mode
        self.cores, self.mem, self.gpus, self.gpu_mem = total
        self.idle_cores, self.idle_mem, self.idle_gpus, self.idle_gpu_mem = idle
        self.frames = 0  # booked onto it in this tick
        self.version = 0  # counts changes: who kept something of the host sees by it that the host moved on

    def take(self, ask: "Ask") -> None:
        """Book one frame of size `ask`."""
        self.idle_cores -= ask.cores
        self.idle_mem -= ask.mem
        self.idle_gpus -= ask.gpus
        self.idle_gpu_mem -= ask.gpu_mem
        self.frames += 1
        self.version += 1


class Ask(NamedTuple):
    """What one frame reserves on a host."""

    cores: int
    mem: int
    gpus: int
    gpu_mem: int


class Layer(NamedTuple):
    """One waiting layer, as the candidate query gives it."""

    order: int  # place in the candidate list
    pk_layer: str
    pk_job: str
    pk_show: str
    pk_folder: str
    priority: int
    waiting: int  # frames
    cores_min: int  # points; 0 the whole host, negative: the host less that many
    cores_max: int  # points; 0 no maximum
    mem_min: int
    gpus_min: int
    gpu_mem_min: int
    threadable: bool
    groups: FrozenSet[int]  # host groups that every gate lets it use
    pinned: Optional[FrozenSet[int]]  # indexes of hosts that its tags name, besides the groups; None: no name in them
    gates: Tuple[str, ...]  # gates of the layer itself that refuse it now; empty: a candidate


class Settings(NamedTuple):
    """The planner's knobs (maestro.setting); 0 is no cap."""

    weight_cores: float = 1.0
    weight_mem: float = 1.0
    weight_gpus: float = 4.0
    weight_gpu_mem: float = 1.0
    layer_candidates_per_group_max: int = 2000
    job_frame_dispatch_max: int = 0
    host_frame_dispatch_max: int = 0


class Caps(NamedTuple):
    """What may still be booked, by owner; an absent key of jobs or folders means no cap, of shows: nothing at all."""

    jobs: Dict[str, Tuple[int, int]]  # pk_job -> (core points, gpus)
    folders: Dict[str, Tuple[int, int]]  # pk_folder -> (core points, gpus)
    shows: Dict[Tuple[str, str], int]  # (pk_show, pk_alloc) -> core points up to the burst
    limits: Dict[str, int]  # pk_limit_record -> frames
    layer_limits: Dict[str, Tuple[str, ...]]  # pk_layer -> its limits


class Placement(NamedTuple):
    """One frame of a layer onto one host, in the order of the draws."""

    layer: int
    host: int
    ask: Ask
    score: float


class Wait(NamedTuple):
    """Why a layer still waits: the bucket it falls in, and every reason that holds."""

    reason: str
    reasons: Tuple[str, ...]


class Plan(NamedTuple):
    """What a tick decided."""

    placements: List[Placement]
    waits: Dict[int, Wait]  # layer index -> why; layers with frames left only
    cut: int  # (layer, group) pairs beyond layer_candidates_per_group_max
    out_of_time: bool

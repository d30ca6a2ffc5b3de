"""Plain data of a tick: hosts, layers, caps, state and settings in; placements, reservations and reasons out.

Units everywhere: core points (100 = one core), KiB of memory, whole gpus, KiB of gpu memory. Times are seconds since
any fixed moment (`_s`) or milliseconds of duration (`_ms`).
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

THREAD_AUTO, THREAD_ALL, THREAD_VARIABLE = 0, 1, 2


class Host:
    """One bookable host. `idle_*` fall as the tick places frames; everything else stays."""

    __slots__ = (
        "cores", "frames", "gpu_mem", "gpus", "group", "hold_cores", "hold_mem", "idle_cores", "idle_gpu_mem",
        "idle_gpus", "idle_mem", "index", "mem", "name", "pk_alloc", "pk_host", "refused", "thread_mode", "version",
    )  # fmt: skip

    def __init__(
        self, index: int, pk_host: str, name: str, group: int, pk_alloc: str, thread_mode: int,
        total: Tuple[int, int, int, int], idle: Tuple[int, int, int, int], refused: int = 0,
    ) -> None:  # fmt: skip
        """`index`: the host's place in the snapshot, settles ties. total and idle: (cores, mem, gpus, gpu mem).

        `refused`: points that its RQD would not start a frame of, whatever the books say is idle; 0: nothing refused.
        """
        self.index = index
        self.pk_host = pk_host
        self.name = name
        self.group = group
        self.pk_alloc = pk_alloc
        self.thread_mode = thread_mode
        self.cores, self.mem, self.gpus, self.gpu_mem = total
        self.idle_cores, self.idle_mem, self.idle_gpus, self.idle_gpu_mem = idle
        self.refused = refused
        if 0 < refused <= self.idle_cores:
            self.idle_cores = refused - 1
        self.hold_cores = 0  # points that frames without gpus leave to waiting frames with gpus
        self.hold_mem = 0
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
        if (self.hold_cores or self.hold_mem) and (ask.gpus or ask.gpu_mem):  # it comes out of what was held for it
            self.hold_cores = max(0, self.hold_cores - ask.cores)
            self.hold_mem = max(0, self.hold_mem - ask.mem)

    def spare(self, gpu_frame: bool) -> Tuple[int, int]:
        """Idle points and KiB that a frame may use: one without gpus leaves alone what is held for those with."""
        if gpu_frame or not (self.hold_cores or self.hold_mem):
            return self.idle_cores, self.idle_mem
        return max(0, self.idle_cores - self.hold_cores), max(0, self.idle_mem - self.hold_mem)


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
    running: int = 0  # frames that run now, on any host
    selfish: bool = False  # of a service that takes every idle core of its host at booking
    job_started_s: float = 0.0
    dispatch_order: int = 0  # the layer's place in its job
    misfits: Tuple[Tuple[str, int], ...] = ()  # gates that rule hosts out, and how many of them
    # KiB: these frames of the layer failed for memory and ask for so much each (mem_min says the same). 0: its others.
    ask: int = 0


class Settings(NamedTuple):
    """The planner's knobs (maestro.setting); 0 is no cap."""

    weight_cores: float = 1.0
    weight_mem: float = 1.0
    weight_gpus: float = 4.0
    weight_gpu_mem: float = 1.0
    layer_candidates_per_group_max: int = 2000
    job_frame_dispatch_max: int = 0
    host_frame_dispatch_max: int = 0
    locality_enabled: bool = True
    locality_bonus: float = 8.0
    locality_window_frames: int = 64  # 0: no cache warmth
    host_limit_seat_bonus: float = 16.0
    layer_host_max_frac: float = 0.25  # 0: no cap
    fair_share: bool = True
    fifo: bool = False  # every show
    fifo_shows: FrozenSet[str] = frozenset()  # pk_show
    reservations_enabled: bool = True
    reservation_block_seconds: int = 300
    reservation_max_fraction: float = 0.5
    reservation_max_grantees: int = 8
    backfill_enabled: bool = True
    gpu_hold_enabled: bool = True
    mem_per_core: int = 0  # KiB; 0: each group's own
    memory_sizing: bool = True
    plan_zero_warn_ticks: int = 40


class Share(NamedTuple):
    """A show's subscription to an allocation: core points."""

    size: int
    burst: int
    cores: int  # running now


class Limit(NamedTuple):
    """One limit that blocks now: enforced, and fresh or failing closed (max 0). Others are left out."""

    name: str
    per_host: bool  # type HOST: a machine holds one seat, whatever it runs; else each frame takes one
    max_value: int
    soft_value: int  # HOST: the number of seats past which no new machine takes one; below 0: max_value is
    used: int  # frames or seats
    holders: FrozenSet[str] = frozenset()  # HOST: pk_host of the machines that hold a seat


class Caps(NamedTuple):
    """What may still be booked, by owner; an absent key of jobs or folders means no cap, of shows: nothing at all."""

    jobs: Mapping[str, Tuple[int, int]]  # pk_job -> (core points, gpus)
    folders: Mapping[str, Tuple[int, int]]  # pk_folder -> (core points, gpus)
    shows: Mapping[Tuple[str, str], Share]  # (pk_show, pk_alloc) -> subscription
    limits: Mapping[str, Limit]  # pk_limit_record -> limit
    layer_limits: Mapping[str, Tuple[str, ...]]  # pk_layer -> pk_limit_record of its limits; those not in limits pass


class Reservation(NamedTuple):
    """A host held for a layer, as an earlier tick granted it."""

    pk_host: str
    pk_layer: str
    priority: int
    cores_min: int
    granted_at_s: float


class Busy(NamedTuple):
    """One running proc: when it is expected to end (inf: unknown) and what it then gives back."""

    end_s: float
    cores: int
    mem: int
    gpus: int
    gpu_mem: int


class Peaks(NamedTuple):
    """What a layer's frames were seen to use."""

    median_rss: int  # KiB, of the last frames' peaks
    samples: int


class State(NamedTuple):
    """What earlier ticks and reports left behind. Empty is right for a tick that knows nothing: it plans correctly."""

    now_s: float = 0.0
    elapsed_ms: int = 0  # since the last tick
    live: Mapping[str, Mapping[str, int]] = {}  # pk_layer -> pk_host -> frames that run there
    warm: Mapping[str, Mapping[str, int]] = {}  # pk_layer -> pk_host it left -> frames of others booked there since
    reservations: Tuple[Reservation, ...] = ()
    debts: Mapping[str, int] = {}  # pk_layer -> net blocked ms before this tick
    run_seconds: Mapping[str, float] = {}  # pk_layer -> mean run time of its frames; absent: no history
    ready: Mapping[str, Tuple[Busy, ...]] = {}  # pk_host -> its running procs; see tick.ready_wanted
    peaks: Mapping[str, Peaks] = {}  # pk_layer
    completed: Mapping[str, int] = {}  # pk_layer -> frames done; layers with a threadable ask of one core suffice
    short_mem: FrozenSet[str] = frozenset()  # pk_host: reports less free memory than its reserve
    closed: Mapping[str, str] = {}  # name of a host that is not in the snapshot -> why ('host down', 'host locked', …)


class Terms(NamedTuple):
    """What a score is made of: the score is their sum."""

    cores: float = 0.0
    mem: float = 0.0
    gpus: float = 0.0
    gpu_mem: float = 0.0
    locality: float = 0.0  # 0 or less
    seat: float = 0.0  # 0 or less


LIVE_WARM, CACHE_WARM, COLD = "live_warm", "cache_warm", "cold"


class Placement(NamedTuple):
    """One frame of a layer onto one host, in the order of the draws."""

    layer: int
    host: int
    ask: Ask
    score: float
    terms: Terms = Terms()
    warmth: str = COLD
    backfill: bool = False  # borrows cores of a host that is held for another layer


class Reason(NamedTuple):
    """One cause that holds, and how many of the snapshot's hosts it rules out.

    What is idle changes from tick to tick: counts of 100 and more hosts that lack something idle are rounded to two
    digits, so that a waiting layer's row is not written anew each time a frame ends somewhere.
    """

    reason: str
    hosts: int


class Wait(NamedTuple):
    """Why a layer still waits: the bucket it falls in, and every reason that holds."""

    reason: str
    reasons: Tuple[Reason, ...]


class Plan(NamedTuple):
    """What a tick decided."""

    placements: List[Placement]
    waits: Dict[int, Wait]  # layer index -> why; layers with frames left only
    cut: int  # (layer, group) pairs beyond layer_candidates_per_group_max
    out_of_time: bool
    grants: Tuple[Reservation, ...] = ()  # new ones
    releases: Tuple[str, ...] = ()  # pk_host whose reservation ends
    debts: Mapping[str, int] = {}  # pk_layer -> net blocked ms after this tick; the absent have none
    requested: int = 0  # layers that asked for a reservation
    held: int = 0  # reservations after this tick
    held_cores: int = 0  # points of the hosts that they hold
    stranded: Mapping[str, int] = {}  # pk_alloc -> idle points that no waiting layer can use
    warnings: Tuple[Tuple[str, str], ...] = ()  # (what, message)

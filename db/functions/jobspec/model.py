"""What a submission needs to know of the farm, and the rows that it becomes. Plain data on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

NewKeys = Callable[[int], List[str]]  # count -> that many new keys


class Show(NamedTuple):
    pk_show: str
    name: str
    active: bool
    paused: bool
    pk_folder: Optional[str]  # root folder, None if the show has none
    pk_dept: Optional[str]


class Facility(NamedTuple):
    pk_facility: str
    name: str
    default: bool


class Service(NamedTuple):
    """Defaults of layers: core points, KiB, minutes."""

    name: str
    threadable: bool
    cores_min: int
    cores_max: int
    mem_min: int
    gpus_min: int
    gpus_max: int
    gpu_mem_min: int
    timeout: int
    timeout_llu: int
    tags: str


# Stands in for a farm that lost its row `default`; OpenCue's seed of it.
DEFAULT_SERVICE = Service("default", False, 100, 0, 3_355_443, 0, 0, 0, 0, 0, "general | desktop")


class KnownFrame(NamedTuple):
    pk_frame: str
    done: bool


@dataclass
class KnownLayer:
    """A layer of a job that is in the database; `frames` by number, as far as depends of the spec ask for them."""

    pk_layer: str
    range: str
    chunk: int
    done: bool
    frames: Dict[int, KnownFrame] = field(default_factory=dict)


@dataclass
class KnownJob:
    """A job that is in the database, the living one of its name or else the latest; layers by name."""

    pk_job: str
    finished: bool
    layers: Dict[str, KnownLayer]


@dataclass
class Context:
    """The farm as far as one spec asks for it. Names are keys."""

    show: Optional[Show] = None
    facilities: List[Facility] = field(default_factory=list)
    services: Dict[str, Service] = field(default_factory=dict)
    show_services: Dict[str, Service] = field(default_factory=dict)
    limits: Dict[str, str] = field(default_factory=dict)  # name -> pk_limit_record
    pending: Set[str] = field(default_factory=set)  # full names taken by living jobs
    jobs: Dict[str, KnownJob] = field(default_factory=dict)
    log_root: str = "/var/lib/maestro/logs"
    now_ms: int = 0  # epoch milliseconds, names post jobs

    @classmethod
    def from_json(cls, data: Dict[str, Any]) -> "Context":
        """From the answer of maestro.submission_context."""
        jobs = {}
        for name, job in data["jobs"].items():
            layers = {}
            for layer_name, layer in job["layers"].items():
                frames = {f[0]: KnownFrame(f[1], f[2]) for f in layer["frames"] or ()}
                layers[layer_name] = KnownLayer(
                    layer["pk_layer"], layer["range"], layer["chunk"], layer["done"], frames
                )
            jobs[name] = KnownJob(job["pk_job"], job["finished"], layers)
        return cls(
            show=Show(**data["show"]) if data["show"] else None,
            facilities=[Facility(**row) for row in data["facilities"]],
            services={row["name"]: Service(**row) for row in data["services"]},
            show_services={row["name"]: Service(**row) for row in data["show_services"]},
            limits=data["limits"],
            pending=set(data["pending"]),
            jobs=jobs,
            log_root=data["log_root"],
            now_ms=data["now_ms"],
        )


@dataclass
class Frames:
    """Frame rows as columns of equal length."""

    pk_frame: List[str] = field(default_factory=list)
    pk_layer: List[str] = field(default_factory=list)
    name: List[str] = field(default_factory=list)
    number: List[int] = field(default_factory=list)
    dispatch_order: List[int] = field(default_factory=list)
    depend_count: List[int] = field(default_factory=list)


@dataclass
class Depends:
    """Depend rows as columns of equal length; None where the type has no such end."""

    pk_depend: List[str] = field(default_factory=list)
    pk_parent: List[Optional[str]] = field(default_factory=list)
    type: List[str] = field(default_factory=list)
    er_job: List[str] = field(default_factory=list)
    er_layer: List[Optional[str]] = field(default_factory=list)
    er_frame: List[Optional[str]] = field(default_factory=list)
    on_job: List[str] = field(default_factory=list)
    on_layer: List[Optional[str]] = field(default_factory=list)
    on_frame: List[Optional[str]] = field(default_factory=list)
    active: List[bool] = field(default_factory=list)
    any: List[bool] = field(default_factory=list)
    composite: List[bool] = field(default_factory=list)


@dataclass
class Submission:
    """Every row of a spec. `rows` holds the short lists by table, each row an object of column names and values."""

    rows: Dict[str, List[Dict[str, Any]]]
    frames: Frames
    depends: Depends
    warnings: List[str]

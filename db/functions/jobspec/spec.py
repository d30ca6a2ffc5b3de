"""Reads the JSON form of a job spec into dataclasses: every element, its syntax and its own bounds.

What needs the database (shows, services, limits, other jobs) is left to `resolve`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from jobspec import framerange
from jobspec.errors import Path, SpecError
from jobspec.reader import Reader, clip
from planner.units import kib_from_gib, kib_from_mib, points_from_cores

LAYERS_MAX = 2000  # per job
CORES_MAX = 100_000  # core points of a frame: 1000 cores
CORES_MIN = 10  # core points; less is raised to one core
CORES_RAISED = 100
MEM_MIN = kib_from_mib(256)  # less is raised to it
MEM_MAX = kib_from_gib(16384)  # KiB of a frame, main or gpu memory
GPUS_MAX = 1024
JOB_CORES_MAX = 1_000_000  # whole cores
RETRIES_MAX = 16
RETRIES_DEFAULT = 1
INT4_MAX = 2_147_483_647

SPEC_KEYS = ("facility", "dept", "show", "shot", "user", "email", "uid", "jobs", "job", "depends")
JOB_KEYS = (
    "name", "paused", "priority", "maxretries", "maxcores", "maxgpus", "autoeat", "localbook", "os", "env", "layers",
    "depends",
)  # fmt: skip
LAYER_KEYS = (
    "name", "type", "cmd", "range", "chunk", "cores", "threadable", "memory", "gpus", "gpu", "gpu_memory", "timeout",
    "timeout_llu", "tags", "limits", "env", "services", "outputs",
)  # fmt: skip
DEPEND_KEYS = ("type", "anyframe", "depjob", "deplayer", "depframe", "onjob", "onlayer", "onframe")

LAYER_TYPES = {"render": "RENDER", "util": "UTIL", "post": "POST", "pre": "PRE"}

# type -> (who waits, for what): job, layer or frame
DEPEND_TYPES: Dict[str, Tuple[str, str]] = {
    "JOB_ON_JOB": ("job", "job"),
    "JOB_ON_LAYER": ("job", "layer"),
    "JOB_ON_FRAME": ("job", "frame"),
    "LAYER_ON_JOB": ("layer", "job"),
    "LAYER_ON_LAYER": ("layer", "layer"),
    "LAYER_ON_FRAME": ("layer", "frame"),
    "FRAME_ON_JOB": ("frame", "job"),
    "FRAME_ON_LAYER": ("frame", "layer"),
    "FRAME_ON_FRAME": ("frame", "frame"),
    "FRAME_BY_FRAME": ("layer", "layer"),
    "PREVIOUS_FRAME": ("layer", "layer"),
    "LAYER_ON_SIM_FRAME": ("layer", "frame"),
}

_NAME = re.compile(r"[\w.-]{3,}", re.ASCII)
_LABEL = re.compile(r"[\w.@+-]+", re.ASCII)
_MEMORY = re.compile(r"([+-]?(?:\d{1,15}(?:\.\d{0,9})?|\.\d{1,9}))\s*([mg]?)", re.ASCII | re.IGNORECASE)


@dataclass
class LayerSpec:
    """A layer as written; None is: not given, the service decides. Cores are core points, memory KiB, times minutes."""

    path: Path
    where: str
    name: str
    type: str
    cmd: str
    range: str
    numbers: List[int]
    chunk: int
    cores: Optional[int]
    threadable: Optional[bool]
    memory: Optional[int]
    gpus: Optional[int]
    gpu_memory: Optional[int]
    timeout: Optional[int]
    timeout_llu: Optional[int]
    tags: Optional[str]
    limits: List[str]
    env: List[Tuple[str, str]]
    services: List[str]
    outputs: List[str]

    def fault(self, key: str, message: str, hint: str = "") -> SpecError:
        return SpecError(f"{self.where}, {key}", message, hint, self.path + (key,))


@dataclass
class JobSpec:
    """A job as written. max_cores is core points."""

    path: Path
    where: str
    name: str
    paused: bool
    priority: int
    max_retries: int
    max_cores: Optional[int]
    max_gpus: Optional[int]
    autoeat: bool
    os: Optional[str]
    env: List[Tuple[str, str]]
    layers: List[LayerSpec]

    def fault(self, key: str, message: str, hint: str = "") -> SpecError:
        return SpecError(f"{self.where}, {key}", message, hint, self.path + (key,))


@dataclass
class DependSpec:
    """A depend as written: names are those of the spec, "" where its type needs none."""

    path: Path
    where: str
    type: str
    any: bool
    depjob: str
    deplayer: str
    depframe: str
    onjob: str
    onlayer: str
    onframe: str

    def fault(self, key: str, message: str, hint: str = "") -> SpecError:
        return SpecError(f"{self.where}, {key}", message, hint, self.path + (key,))


@dataclass
class Spec:
    show: str
    shot: str
    user: str
    facility: str
    email: Optional[str]
    uid: Optional[int]
    jobs: List[JobSpec]
    depends: List[DependSpec]
    warnings: List[str] = field(default_factory=list)


def parse(document: Any) -> Spec:
    """The spec of a JSON document (an object, or {"spec": object}). Raises SpecError."""
    if isinstance(document, dict) and set(document) == {"spec"}:
        document = document["spec"]
    top = Reader(document, "", (), SPEC_KEYS)
    spec = Spec(
        show=top.text("show", 512, required=True, hint="name the show"),
        shot=_label(top, "shot", 64).replace("-", "_").lower(),
        user=_user(top),
        facility=top.text("facility", 36).lower(),
        email=top.text("email", 256) or None,
        uid=_uid(top),
        jobs=[],
        depends=[],
    )
    if top.has("dept"):
        spec.warnings.append("dept is ignored: a job belongs to the department of its show's root folder")
    key = "jobs" if "jobs" in top.data else "job"
    jobs = top.items(key)
    if not jobs:
        raise top.fault("jobs", "the spec has no job", "add at least one job with a name and layers")
    budget = _Budget()
    for index, data in enumerate(jobs):
        path: Path = (key, index)
        spec.jobs.append(_job(data, path, spec, budget))
    for path, data in [(("depends", i), d) for i, d in enumerate(top.items("depends"))]:
        spec.depends.append(_depend(data, path, f"depend {path[1]}", None, spec))
    for index, data in enumerate(jobs):
        own = data.get("depends") or []
        for at, depend in enumerate(own if isinstance(own, list) else [own]):
            where = f"job {spec.jobs[index].name}, depend {at}"
            spec.depends.append(_depend(depend, (key, index, "depends", at), where, spec.jobs[index].name, spec))
    return spec


class _Budget:
    """What is left of the frames and range numbers that one spec may have."""

    def __init__(self) -> None:
        self.frames = framerange.FRAMES_MAX
        self.elements = framerange.ELEMENTS_MAX


def _label(top: Reader, key: str, width: int) -> str:
    value = top.text(key, width, required=True, hint=f"name the {key}")
    if not _LABEL.fullmatch(value) or value in (".", ".."):
        raise top.fault(key, f'"{clip(value)}" is not a name', "letters, digits and _ . - @ + are allowed")
    return value


def _user(top: Reader) -> str:
    user = _label(top, "user", 32)
    if user.lower() == "root":
        raise top.fault("user", "root may not submit", "submit as the user whose files the frames write")
    return user


def _uid(top: Reader) -> Optional[int]:
    uid = top.integer("uid", 0, 4_294_967_294)
    if uid == 0:
        raise top.fault("uid", "0 may not submit", "submit with the uid of an ordinary user, or leave uid out")
    return uid


def _job(data: Any, path: Path, spec: Spec, budget: _Budget) -> JobSpec:
    label = data.get("name") if isinstance(data, dict) else None
    where = f"job {clip(str(label))}" if label else f"job {path[-1]}"
    node = Reader(data, where, path, JOB_KEYS)
    name = node.text("name", 255, required=True, hint="name the job")
    if node.has("localbook"):
        spec.warnings.append(f"{where}: localbook is ignored")
    retries = node.integer("maxretries", -INT4_MAX, INT4_MAX)
    if retries is not None and not 0 <= retries <= RETRIES_MAX:
        spec.warnings.append(f"{where}: maxretries {retries} was brought into 0 to {RETRIES_MAX}")
    job = JobSpec(
        path=path,
        where=where,
        name=name,
        paused=node.boolean("paused") or False,
        priority=_or(node.integer("priority", 0, INT4_MAX), 1),
        max_retries=min(max(_or(retries, RETRIES_DEFAULT), 0), RETRIES_MAX),
        max_cores=_max_cores(node),
        max_gpus=node.integer("maxgpus", 0, JOB_CORES_MAX),
        autoeat=node.boolean("autoeat") or False,
        os=node.text("os", 12) or None,
        env=node.pairs("env", 2048, 2048),
        layers=[],
    )
    layers = node.items("layers")
    if not layers:
        raise node.fault("layers", "the job has no layers", "add at least one layer with a cmd and a range")
    if len(layers) > LAYERS_MAX:
        raise node.fault("layers", f"the job has {len(layers)} layers", f"at most {LAYERS_MAX} are allowed")
    names = set()
    for index, item in enumerate(layers):
        layer = _layer(item, path + ("layers", index), where, spec, budget)
        if layer.name in names:
            raise layer.fault("name", f'the job has two layers named "{layer.name}"', "give each layer its own name")
        names.add(layer.name)
        job.layers.append(layer)
    if all(layer.type == "POST" for layer in job.layers):
        raise node.fault("layers", "all layers are Post layers", "a job needs a layer that runs before them")
    return job


def _max_cores(node: Reader) -> Optional[int]:
    """<maxcores> is whole cores; "64.0" is taken for 64."""
    text = node.text("maxcores")
    if not text:
        return None
    cores = node.decimal("maxcores", text)
    if cores != int(cores) or not 1 <= cores <= JOB_CORES_MAX:
        raise node.fault("maxcores", f'"{clip(text)}" is out of bounds',
                         f"whole cores from 1 to {JOB_CORES_MAX}, or leave it out for no cap")  # fmt: skip
    return points_from_cores(int(cores))


def _layer(data: Any, path: Path, job: str, spec: Spec, budget: _Budget) -> LayerSpec:
    label = data.get("name") if isinstance(data, dict) else None
    where = f"{job}, layer {clip(str(label))}" if label else f"{job}, layer {path[-1]}"
    node = Reader(data, where, path, LAYER_KEYS)
    name = conform(node, "name", node.text("name", required=True, hint="name the layer"))
    kind = node.text("type") or "Render"
    if kind.lower() not in LAYER_TYPES:
        raise node.fault("type", f'"{clip(kind)}" is not a layer type', "Render, Util or Post is expected")
    chunk = _or(node.integer("chunk", 1, INT4_MAX), 1)
    range_text = node.text("range", required=True, hint="write frames as 1-10")
    numbers = _numbers(node, range_text, chunk, budget)
    longest = max(len(f"{number:04d}-{name}") for number in (min(numbers), max(numbers)))
    if longest > 256:
        raise node.fault("name", f"has {len(name)} characters", f"at most {256 - longest + len(name)} are stored")
    return LayerSpec(
        path=path,
        where=where,
        name=name,
        type=LAYER_TYPES[kind.lower()],
        cmd=node.text("cmd", required=True, hint="write the command of a frame"),
        range=range_text,
        numbers=numbers,
        chunk=chunk,
        cores=_cores(node, spec),
        threadable=node.boolean("threadable"),
        memory=_memory(node, "memory", MEM_MIN),
        gpus=node.integer("gpus", 0, GPUS_MAX),
        gpu_memory=_gpu_memory(node),
        timeout=node.integer("timeout", 0, INT4_MAX),
        timeout_llu=node.integer("timeout_llu", 0, INT4_MAX),
        tags=_tags(node),
        limits=node.texts("limits", ",", 255),
        env=node.pairs("env", 2048, 2048),
        services=node.texts("services", ",", 36),
        outputs=_outputs(node),
    )


def _numbers(node: Reader, text: str, chunk: int, budget: _Budget) -> List[int]:
    """The layer's numbers; takes its frames off what the spec may have."""
    try:
        numbers = framerange.expand(text, budget.elements)
    except framerange.RangeError as error:
        raise node.fault("range", str(error), error.hint) from None
    if not numbers:
        raise node.fault("range", f'"{clip(text)}" names no frame', "write frames as 1-10")
    frames = -(-len(numbers) // chunk)
    if frames > budget.frames:
        total = framerange.FRAMES_MAX - budget.frames + frames
        raise node.fault(
            "range", f"brings the spec to {total:,} frames", f"at most {framerange.FRAMES_MAX:,} are allowed"
        )
    budget.frames -= frames
    budget.elements -= len(numbers)
    return numbers


def _cores(node: Reader, spec: Spec) -> Optional[int]:
    """Core points: a number with a point is cores, one without is core points; 0 and below ask for the whole host."""
    text = node.text("cores")
    if not text:
        return None
    number = node.decimal("cores", text)
    points = points_from_cores(number) if "." in text else int(number)
    if abs(points) > CORES_MAX:
        raise node.fault("cores", f'"{clip(text)}" is out of bounds',
                         f"at most {CORES_MAX // 100}.0 cores ({CORES_MAX} core points)")  # fmt: skip
    if 0 < points < CORES_MIN or (points == 0 and number > 0):
        spec.warnings.append(
            f'{node.where}: cores "{text}" is {points} core points (100 = one core); raised to one core'
        )
        return CORES_RAISED
    return points


def _memory(node: Reader, key: str, low: int) -> Optional[int]:
    """KiB of "512m", "4g" or "4" (GiB); below `low` it is raised to it."""
    text = node.text(key)
    if not text:
        return None
    match = _MEMORY.fullmatch(text)
    if not match:
        raise node.fault(key, f'"{clip(text)}" is not an amount of memory', "write 512m, 4g, or 4 for 4 GiB")
    amount = node.decimal(key, match[1])
    kib = kib_from_mib(amount) if match[2].lower() == "m" else kib_from_gib(amount)
    if amount < 0 or kib > MEM_MAX:
        raise node.fault(key, f'"{clip(text)}" is out of bounds', "from 0 to 16384g is allowed")
    return max(kib, low)


def _gpu_memory(node: Reader) -> Optional[int]:
    if node.has("gpu") and node.has("gpu_memory"):
        raise node.fault("gpu", "is the old name of gpu_memory, which is given too", "keep gpu_memory alone")
    return _memory(node, "gpu" if node.has("gpu") else "gpu_memory", 0)


def _tags(node: Reader) -> Optional[str]:
    tags = node.texts("tags", "|")
    for tag in tags:
        if not _NAME.fullmatch(tag):
            raise node.fault("tags", f'"{clip(tag)}" is not a tag',
                             "a tag has three or more of letters, digits, _ . and -; tags are parted by |")  # fmt: skip
    joined = " | ".join(tags)
    node.check_text("tags", joined, 4000)
    return joined or None


def _outputs(node: Reader) -> List[str]:
    """File specs, of an object {name: path} or a list of paths."""
    if isinstance(node.data.get("outputs"), dict):
        found = [path for _, path in node.pairs("outputs", 2048, 2048) if path]
    else:
        found = node.texts("outputs", "\n", 2048)
    return list(dict.fromkeys(found))


def _depend(data: Any, path: Path, where: str, own_job: Optional[str], spec: Spec) -> DependSpec:
    node = Reader(data, where, path, DEPEND_KEYS)
    kind = node.text("type", required=True, hint="one of " + ", ".join(DEPEND_TYPES)).upper().replace("-", "_")
    any_frame = node.boolean("anyframe") or False
    if kind == "LAYER_ON_ANY":
        kind, any_frame = "LAYER_ON_LAYER", True
    if kind not in DEPEND_TYPES:
        raise node.fault("type", f'"{clip(kind)}" is not a depend type', "one of " + ", ".join(DEPEND_TYPES))
    if any_frame and kind != "LAYER_ON_LAYER":
        spec.warnings.append(f"{where}: anyframe is ignored, {kind} waits for what it names")
        any_frame = False
    alone = own_job or (spec.jobs[0].name if len(spec.jobs) == 1 else "")
    depend = DependSpec(
        path=path,
        where=where,
        type=kind,
        any=any_frame,
        depjob=node.text("depjob") or alone,
        deplayer=node.text("deplayer"),
        depframe=node.text("depframe"),
        onjob=node.text("onjob") or alone,
        onlayer=node.text("onlayer"),
        onframe=node.text("onframe"),
    )
    who, what = DEPEND_TYPES[kind]
    if what == "frame" and not depend.onframe:
        # Cuebot looks this frame up under onlayer; specs that work there keep working here.
        depend.onframe = depend.onlayer
    for key in ("depjob", "onjob", "dep" + who, "on" + what):
        if not getattr(depend, key):
            raise node.fault(key, f"is missing, {kind} needs it", f"name the {who if key.startswith('dep') else what}")
    return depend


def conform(node: Reader, key: str, name: str) -> str:
    """A layer's or job's own name as stored: lower case, dashes as underscores."""
    if not _NAME.fullmatch(name):
        raise node.fault(key, f'"{clip(name)}" is not a name', "three or more letters, digits, _ . and - are allowed")
    return name.replace("-", "_").lower()


def conform_job(name: str, show: str, shot: str, user: str) -> str:
    """Full name of a job: show-shot-user_name, lower case. Raises ValueError for a name that cannot be one."""
    prefix = f"{show}-{shot}-{user}_".lower()
    suffix = name.lower()
    if suffix.startswith(prefix):
        suffix = suffix[len(prefix) :]
    if not _NAME.fullmatch(suffix):
        raise ValueError(f'"{clip(name)}" is not a name')
    return prefix + suffix.replace("-", "_")


def _or(value: Optional[int], default: int) -> int:
    return default if value is None else value

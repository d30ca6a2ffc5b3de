"""Depends of a spec: names to keys, frames to frames, and the proof that every frame can start one day.

Rows are OpenCue's. FRAME_BY_FRAME and PREVIOUS_FRAME are composite parents of FRAME_ON_FRAME rows; LAYER_ON_SIM_FRAME
becomes plain FRAME_ON_FRAME rows. A frame counts every active row that it, its layer or its job waits by.
"""

from __future__ import annotations

import bisect
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from jobspec import framerange
from jobspec.built import BuiltJob, BuiltLayer
from jobspec.errors import SpecError
from jobspec.graph import Graph, Node
from jobspec.model import Context, KnownJob, NewKeys, Show, Submission
from jobspec.reader import clip
from jobspec.spec import DEPEND_TYPES, DependSpec, Spec, conform_job
from jobspec.tokens import frame_name, split_frame_name

DEPENDS_MAX = 1_000_000  # rows of one spec

Built = Dict[str, Tuple[BuiltJob, Optional[BuiltJob]]]


class Needs(NamedTuple):
    """What `maestro.submission_context` is to look up."""

    job_names: List[str]  # full names that the spec's own jobs take
    services: List[str]
    limits: List[str]
    on_jobs: List[str]  # full names of jobs that depends name
    on_layers: List[Tuple[str, str]]  # (job, layer) whose frames a depend pairs
    on_frames: List[Tuple[str, str]]  # (job, frame name)


def needs(spec: Spec, show_name: str) -> Needs:
    """What of the farm the spec asks for. Names that cannot be are left out; `resolve` faults them."""
    own = {name for job in spec.jobs for name in _full_names(job.name, spec, show_name)}
    on_jobs: Set[str] = set()
    on_layers: Set[Tuple[str, str]] = set()
    on_frames: Set[Tuple[str, str]] = set()
    for depend in spec.depends:
        for name in _full_names(depend.onjob, spec, show_name):
            on_jobs.add(name)
            if depend.type in ("FRAME_BY_FRAME", "PREVIOUS_FRAME"):
                on_layers.add((name, _layer_name(depend.onlayer)))
            elif DEPEND_TYPES[depend.type][1] == "frame":
                frame = _frame(depend.onframe)
                if frame:
                    on_frames.add((name, frame_name(*frame)))
    return Needs(
        job_names=sorted(own),
        services=sorted({service for job in spec.jobs for layer in job.layers for service in layer.services}),
        limits=sorted({limit for job in spec.jobs for layer in job.layers for limit in layer.limits}),
        on_jobs=sorted(on_jobs),
        on_layers=sorted(on_layers),
        on_frames=sorted(on_frames),
    )


def _full_names(name: str, spec: Spec, show_name: str) -> List[str]:
    """Full names that a job's name can stand for: this show, shot and user's job, or the name as it is."""
    try:
        return [conform_job(name, show_name, spec.shot, spec.user), name.lower()]
    except ValueError:
        return [name.lower()]


def _layer_name(name: str) -> str:
    return name.replace("-", "_").lower()


def _frame(name: str) -> Optional[Tuple[int, str]]:
    try:
        number, layer = split_frame_name(name)
    except ValueError:
        return None
    return number, _layer_name(layer)


class End(NamedTuple):
    """One end of a depend. `frames` maps frame numbers to (key, done, position in the submission or -1)."""

    pk_job: str
    pk_layer: Optional[str]
    done: bool
    numbers: List[int]  # the layer's range, expanded
    chunk: int
    frames: Dict[int, Tuple[str, bool, int]]
    node: Optional[Node]  # None: a job that is in the database already


class _Builder:
    def __init__(
        self, spec: Spec, show: Show, built: Built, context: Context, new_keys: NewKeys, out: Submission
    ) -> None:
        self.spec, self.show, self.built, self.context, self.out = spec, show, built, context, out
        self.new_keys = new_keys
        self.seen: Set[Tuple[str, str, str]] = set()
        self.graph = Graph()
        self.layer_waits: Dict[str, int] = {}  # pk_layer -> rows that each of its frames waits by
        self.job_waits: Dict[str, int] = {}
        self.ends: Dict[str, End] = {}  # of the spec's own layers, by pk_layer
        # id of a list of numbers -> that list, kept so that the id stays its own, and number -> number of its frame
        self.covers: Dict[int, Tuple[List[int], Dict[int, int]]] = {}
        self.layers: Dict[Tuple[str, str], "BuiltLayer"] = {}
        self.owners: Dict[str, "BuiltJob"] = {}  # pk_job -> job, post jobs too
        for name, pair in built.items():
            for job in pair:
                if job is None:
                    continue
                self.owners[job.pk_job] = job
                self.graph.add_job(job.pk_job)
                for layer in job.layers:
                    self.layers[name, layer.spec.name] = layer
                    self.graph.add_layer(job.pk_job, layer.pk_layer, layer.spec.name, layer.first, layer.count)
            if pair[1] is not None:
                self.graph.wait(("job start", pair[1].pk_job), ("job", pair[0].pk_job))

    # Names to ends

    def own_job(self, depend: DependSpec) -> str:
        for name in _full_names(depend.depjob, self.spec, self.show.name):
            if name in self.built:
                return name
        raise depend.fault("depjob", f'"{clip(depend.depjob)}" is not a job of this spec', "only its own jobs can wait")

    def waiting_end(self, depend: DependSpec) -> End:
        """The end that waits; always in this spec."""
        job = self.own_job(depend)
        who = DEPEND_TYPES[depend.type][0]
        if who == "job":
            main = self.built[job][0]
            return End(main.pk_job, None, False, [], 1, {}, ("job start", main.pk_job))
        if who == "layer":
            return self.own_layer(depend, "deplayer", job, _layer_name(depend.deplayer))
        return self.own_frame(depend, "depframe", job, depend.depframe)

    def awaited_end(self, depend: DependSpec) -> End:
        """The end waited for; in this spec, or in a job that is in the database."""
        what = DEPEND_TYPES[depend.type][1]
        names = _full_names(depend.onjob, self.spec, self.show.name)
        for name in names:
            if name in self.built:
                if what == "job":
                    main = self.built[name][0]
                    return End(main.pk_job, None, False, [], 1, {}, ("job", main.pk_job))
                if what == "layer":
                    return self.own_layer(depend, "onlayer", name, _layer_name(depend.onlayer))
                return self.own_frame(depend, "onframe", name, depend.onframe)
        for name in names:
            if name in self.context.jobs:
                return self.known_end(depend, what, name, self.context.jobs[name])
        raise depend.fault("onjob", f'there is no job "{clip(depend.onjob)}"', "name a job of this spec or of the farm")

    def own_layer(self, depend: DependSpec, key: str, job: str, layer_name: str) -> End:
        layer = self.layers.get((job, layer_name))
        if layer is None:
            known = ", ".join(name for owner, name in self.layers if owner == job)
            raise depend.fault(key, f'job {job} has no layer "{clip(layer_name)}"', f"its layers: {known[:200]}")
        if layer.pk_layer not in self.ends:
            frames = self.out.frames
            positions = range(layer.first, layer.first + layer.count)
            self.ends[layer.pk_layer] = End(
                layer.pk_job, layer.pk_layer, False, layer.spec.numbers, layer.spec.chunk,
                {frames.number[at]: (frames.pk_frame[at], False, at) for at in positions}, ("layer", layer.pk_layer),
            )  # fmt: skip
        return self.ends[layer.pk_layer]

    def own_frame(self, depend: DependSpec, key: str, job: str, name: str) -> End:
        number, layer_name = self.frame_of(depend, key, name)
        end = self.own_layer(depend, key, job, layer_name)
        if number not in end.frames:
            numbers = list(end.frames)
            raise depend.fault(key, f'job {job} has no frame "{clip(name)}"',
                               f"layer {layer_name} has {frame_name(numbers[0], layer_name)} to "
                               f"{frame_name(numbers[-1], layer_name)}")  # fmt: skip
        return end._replace(frames={number: end.frames[number]}, node=("frame", end.frames[number][2]))

    def known_end(self, depend: DependSpec, what: str, name: str, job: KnownJob) -> End:
        """An end in a job that is in the database. A finished job's missing work will never come: that is refused."""
        if what == "job":
            return End(job.pk_job, None, job.finished, [], 1, {}, None)
        number = None
        if what == "layer":
            layer_name = _layer_name(depend.onlayer)
        else:
            number, layer_name = self.frame_of(depend, "onframe", depend.onframe)
        layer = job.layers.get(layer_name)
        key = "on" + what
        if layer is None:
            raise depend.fault(key, f'job {name} has no layer "{clip(layer_name)}"',
                               f"its layers: {', '.join(job.layers)[:200]}")  # fmt: skip
        if number is not None and number not in layer.frames:
            raise depend.fault(key, f'job {name} has no frame "{clip(depend.onframe)}"', "name one of its frames")
        done = layer.done if number is None else layer.frames[number].done
        if job.finished and not done:
            raise depend.fault(key, f"job {name} is over and this part of it never finished",
                               "retry that job first, or drop the depend")  # fmt: skip
        frames = {n: (f.pk_frame, f.done, -1) for n, f in layer.frames.items() if number is None or n == number}
        numbers: List[int] = []
        if depend.type in ("FRAME_BY_FRAME", "PREVIOUS_FRAME"):
            try:
                numbers = framerange.expand(layer.range)
            except framerange.RangeError as error:
                raise depend.fault(key, f"job {name}, layer {layer_name}: {error}", error.hint) from None
        return End(job.pk_job, layer.pk_layer, done, numbers, layer.chunk, frames, None)

    def frame_of(self, depend: DependSpec, key: str, name: str) -> Tuple[int, str]:
        frame = _frame(name)
        if frame is None:
            raise depend.fault(key, f'"{clip(name)}" is not a frame name', "write it as 0001-layer")
        return frame

    # Rows

    def add(self, depend: DependSpec) -> None:
        er = self.waiting_end(depend)
        on = self.awaited_end(depend)
        kind = depend.type
        if kind == "FRAME_BY_FRAME" and (_one_chunk(er) or _one_chunk(on)):
            kind = "LAYER_ON_LAYER"
        if kind in ("FRAME_BY_FRAME", "PREVIOUS_FRAME"):
            parent = self.row(kind, er, on, None, None, on.done, composite=True)
            pairs = self.by_frame(er, on) if kind == "FRAME_BY_FRAME" else self.previous(er, on)
            for waiting, awaited in pairs:
                self.frame_row(depend, er, waiting, on, awaited, parent)
        elif kind == "LAYER_ON_SIM_FRAME":
            awaited = next(iter(on.frames.values()))
            for waiting in er.frames.values():
                self.frame_row(depend, er, waiting, on, awaited, None)
        elif kind == "FRAME_ON_FRAME":
            self.frame_row(depend, er, _only(er), on, _only(on), None)
        else:
            who, what = DEPEND_TYPES[kind]
            er_frame = _only(er) if who == "frame" else None
            on_frame = _only(on) if what == "frame" else None
            pk = self.row(kind, er, on, er_frame, on_frame, on.done, any_frame=depend.any)
            if pk and not on.done:
                if er_frame:
                    self.out.frames.depend_count[er_frame[2]] += 1
                elif who == "layer":
                    self.layer_waits[str(er.pk_layer)] = self.layer_waits.get(str(er.pk_layer), 0) + 1
                else:
                    self.job_waits[er.pk_job] = self.job_waits.get(er.pk_job, 0) + 1
            if on.node and er.node:
                waiting_node = ("layer start", er.node[1]) if who == "layer" else er.node
                self.graph.wait(waiting_node, ("any frame", on.node[1]) if depend.any else on.node)
        if len(self.out.depends.pk_depend) > DEPENDS_MAX:
            raise SpecError(depend.where, f"brings the spec to over {DEPENDS_MAX:,} depends between frames",
                            "let the layer wait for the layer", depend.path)  # fmt: skip

    def frame_row(
        self, depend: DependSpec, er: End, waiting: Tuple[str, bool, int], on: End, awaited: Tuple[str, bool, int],
        parent: Optional[str],
    ) -> None:  # fmt: skip
        if self.row("FRAME_ON_FRAME", er, on, waiting, awaited, awaited[1], parent=parent) is None:
            return
        if not awaited[1]:
            self.out.frames.depend_count[waiting[2]] += 1
        if awaited[2] >= 0:
            self.graph.wait(("frame", waiting[2]), ("frame", awaited[2]))

    def row(
        self, kind: str, er: End, on: End, er_frame: Any, on_frame: Any, done: bool,
        any_frame: bool = False, composite: bool = False, parent: Optional[str] = None,
    ) -> Optional[str]:  # fmt: skip
        """Append a depend row; returns its key, or None if the same depend is there already."""
        who, what = DEPEND_TYPES[kind]
        er_keys = (er.pk_job, er.pk_layer if who != "job" else None, er_frame[0] if er_frame else None)
        on_keys = (on.pk_job, on.pk_layer if what != "job" else None, on_frame[0] if on_frame else None)
        identity = (kind, er_keys[2] or er_keys[1] or er_keys[0], on_keys[2] or on_keys[1] or on_keys[0])
        if identity in self.seen:
            return None
        self.seen.add(identity)
        rows = self.out.depends
        pk = self.new_keys(1)[0]
        rows.pk_depend.append(pk)
        rows.pk_parent.append(parent)
        rows.type.append(kind)
        rows.er_job.append(er_keys[0])
        rows.er_layer.append(er_keys[1])
        rows.er_frame.append(er_keys[2])
        rows.on_job.append(on_keys[0])
        rows.on_layer.append(on_keys[1])
        rows.on_frame.append(on_keys[2])
        rows.active.append(not done)
        rows.any.append(any_frame)
        rows.composite.append(composite)
        return pk

    # Frames to frames

    def by_frame(self, er: End, on: End) -> Iterator[Tuple[Any, Any]]:
        """A frame waits for each frame that renders one of its numbers."""
        cover = self.cover(on)
        for numbers in framerange.chunked(er.numbers, er.chunk):
            waiting = er.frames[numbers[0]]
            for number in dict.fromkeys(cover[n] for n in numbers if n in cover):
                if number in on.frames:
                    yield waiting, on.frames[number]

    def previous(self, er: End, on: End) -> Iterator[Tuple[Any, Any]]:
        """A frame waits for the one that renders the number before its first, in the order of the awaited range."""
        cover = self.cover(on)
        positions = {number: at for at, number in enumerate(on.numbers)}
        ascending = sorted(on.numbers)
        going_up = er.numbers[0] <= er.numbers[-1]
        for number in er.frames:
            before = _before(number, on.numbers, positions, ascending, going_up)
            if before is not None and cover[before] in on.frames:
                yield er.frames[number], on.frames[cover[before]]

    def cover(self, end: End) -> Dict[int, int]:
        """Number -> number of the frame that renders it."""
        key = id(end.numbers)
        if key not in self.covers:
            cover = {n: numbers[0] for numbers in framerange.chunked(end.numbers, end.chunk) for n in numbers}
            self.covers[key] = (end.numbers, cover)
        return self.covers[key][1]

    def finish(self) -> None:
        """Add what whole layers and jobs wait by to their frames' counts; refuse waits that can never end."""
        counts = self.out.frames.depend_count
        for job in self.owners.values():
            for layer in job.layers:
                waits = self.layer_waits.get(layer.pk_layer, 0) + self.job_waits.get(job.pk_job, 0)
                if waits:
                    for at in range(layer.first, layer.first + layer.count):
                        counts[at] += waits
        ring = self.graph.deadlock()
        if ring:
            raise SpecError("depends", "wait for each other: " + clip(" -> ".join(ring)),
                            "break the circle: drop one of these depends", ("depends",))  # fmt: skip


def build(spec: Spec, show: Show, built: Built, context: Context, new_keys: NewKeys, out: Submission) -> None:
    """Adds the spec's depend rows to `out` and sets its frames' depend counts. Raises SpecError."""
    if not spec.depends:
        return
    builder = _Builder(spec, show, built, context, _Keys(new_keys).take, out)
    for depend in spec.depends:
        builder.add(depend)
    builder.finish()


class _Keys:
    """Hands out keys one by one from batches: a call for each of 100,000 rows costs more than the rows."""

    def __init__(self, new_keys: NewKeys) -> None:
        self.new_keys = new_keys
        self.stock: List[str] = []

    def take(self, count: int) -> List[str]:
        if len(self.stock) < count:
            self.stock = self.new_keys(max(count, 256))
        return [self.stock.pop() for _ in range(count)]


def _only(end: End) -> Tuple[str, bool, int]:
    return next(iter(end.frames.values()))


def _one_chunk(end: End) -> bool:
    """A chunked layer of a single frame: it has nothing to pair."""
    return end.chunk > 1 and len(end.numbers) <= end.chunk


def _before(
    number: int, numbers: List[int], positions: Dict[int, int], ascending: List[int], going_up: bool
) -> Optional[int]:
    """The number before `number`: by place if the range has it, else the nearest on the side the layer comes from."""
    at = positions.get(number)
    if at is not None:
        return numbers[at - 1] if at else None
    slot = bisect.bisect_left(ascending, number) - (1 if going_up else 0)
    return ascending[slot] if 0 <= slot < len(ascending) else None

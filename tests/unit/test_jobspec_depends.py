"""Depends: which frame waits for which, how often it counts, and what can never run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobspec.depends import needs
from jobspec.errors import SpecError
from jobspec.model import Context, Facility, KnownFrame, KnownJob, KnownLayer, Show, Submission
from jobspec.resolve import normalise
from jobspec.spec import parse

PREFIX = "demo-sh01-anna_"


def build(layers: dict[str, Any], *depends: dict[str, Any], jobs: Any = None, known: Any = None) -> Submission:
    """A spec of one job "work" with layers {name: range or (range, chunk)}, and perhaps more jobs of the same form."""

    def layer(name: str, text: Any) -> dict[str, Any]:
        frames, chunk = text if isinstance(text, tuple) else (text, 1)
        kind = "Post" if name.startswith("post") else "Render"
        return {"name": name, "type": kind, "cmd": "x", "range": frames, "chunk": chunk}

    spec = {
        "show": "demo", "shot": "sh01", "user": "anna",
        "jobs": [{"name": job, "layers": [layer(*item) for item in content.items()]}
                 for job, content in {"work": layers, **(jobs or {})}.items()],
        "depends": [{"depjob": "work", "onjob": "work", **depend} for depend in depends],
    }  # fmt: skip
    numbers = itertools.count(1)
    context = Context(
        show=Show("s", "demo", True, False, "f", "d"), facilities=[Facility("l", "local", True)], jobs=known or {}
    )
    return normalise(spec, context, lambda count: [f"k{next(numbers)}" for _ in range(count)])


def links(made: Submission) -> dict[str, list[str]]:
    """Waiting frame -> awaited frames, by name, over FRAME_ON_FRAME rows."""
    names = dict(zip(made.frames.pk_frame, made.frames.name, strict=True))
    found: dict[str, list[str]] = {}
    for kind, er, on in zip(made.depends.type, made.depends.er_frame, made.depends.on_frame, strict=True):
        if kind == "FRAME_ON_FRAME":
            found.setdefault(names[er or ""], []).append(names.get(on or "", str(on)))
    return found


def counts(made: Submission) -> dict[str, int]:
    return dict(zip(made.frames.name, made.frames.depend_count, strict=True))


def fault(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(SpecError) as caught:
        build(*args, **kwargs)
    assert caught.value.hint
    return str(caught.value)


AB = {"aaa": "1-3", "bbb": "1-3"}


@pytest.mark.parametrize(
    ("depend", "waits"),
    [
        ({"type": "LAYER_ON_LAYER", "deplayer": "aaa", "onlayer": "bbb"}, [1, 1, 1]),
        ({"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onframe": "0002-bbb"}, [1, 1, 1]),
        ({"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onlayer": "0002-bbb"}, [1, 1, 1]),
        ({"type": "LAYER_ON_SIM_FRAME", "deplayer": "aaa", "onframe": "0002-bbb"}, [1, 1, 1]),
        ({"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"}, [1, 1, 1]),
        ({"type": "PREVIOUS_FRAME", "deplayer": "aaa", "onlayer": "bbb"}, [0, 1, 1]),
        ({"type": "FRAME_ON_LAYER", "depframe": "0003-aaa", "onlayer": "bbb"}, [0, 0, 1]),
        ({"type": "FRAME_ON_FRAME", "depframe": "1-aaa", "onframe": "0002-bbb"}, [1, 0, 0]),
        ({"type": "layer_on_any", "deplayer": "AAA", "onlayer": "bbb"}, [1, 1, 1]),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_each_type_counts_on_the_frames_that_wait(depend: dict[str, str], waits: list[int]) -> None:
    assert build(AB, depend).frames.depend_count == [*waits, 0, 0, 0]


@pytest.mark.parametrize(
    ("depend", "waits"),
    [
        ({"type": "JOB_ON_JOB", "onjob": "other"}, [1, 1]),
        ({"type": "JOB_ON_LAYER", "onjob": "other", "onlayer": "ccc"}, [1, 1]),
        ({"type": "JOB_ON_FRAME", "onjob": "other", "onframe": "0001-ccc"}, [1, 1]),
        ({"type": "LAYER_ON_JOB", "deplayer": "bbb", "onjob": "other"}, [0, 1]),
        ({"type": "FRAME_ON_JOB", "depframe": "0001-aaa", "onjob": "other"}, [1, 0]),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_jobs_of_one_spec_wait_for_each_other(depend: dict[str, str], waits: list[int]) -> None:
    made = build({"aaa": "1", "bbb": "1"}, depend, jobs={"other": {"ccc": "1"}})
    assert made.frames.depend_count == [*waits, 0]
    assert made.depends.type == [depend["type"]]


def test_rows_name_both_ends() -> None:
    made = build(AB, {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"})
    rows = made.depends
    job = made.rows["job"][0]["pk_job"]
    one, two = (layer["pk_layer"] for layer in made.rows["layer"])
    assert rows.type == ["FRAME_BY_FRAME"] + ["FRAME_ON_FRAME"] * 3
    assert rows.composite == [True, False, False, False]
    assert rows.pk_parent == [None] + [rows.pk_depend[0]] * 3
    assert (set(rows.er_job), set(rows.on_job)) == ({job}, {job})
    assert (set(rows.er_layer), set(rows.on_layer)) == ({one}, {two})
    assert rows.er_frame == [None, *made.frames.pk_frame[:3]]
    assert rows.active == [True] * 4


def test_any_is_kept_for_layers_alone() -> None:
    made = build(AB, {"type": "LAYER_ON_LAYER", "deplayer": "aaa", "onlayer": "bbb", "anyframe": "True"})
    assert made.depends.any == [True]
    made = build(AB, {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb", "anyframe": "True"})
    assert not any(made.depends.any)
    assert made.warnings


@pytest.mark.parametrize(
    ("er", "on", "expected"),
    [
        ("1-3", "2-4", {"0002-aaa": ["0002-bbb"], "0003-aaa": ["0003-bbb"]}),
        ("1-4", ("1-4", 2), {"0001-aaa": ["0001-bbb"], "0002-aaa": ["0001-bbb"], "0003-aaa": ["0003-bbb"],
                             "0004-aaa": ["0003-bbb"]}),
        (("1-4", 2), "1-4", {"0001-aaa": ["0001-bbb", "0002-bbb"], "0003-aaa": ["0003-bbb", "0004-bbb"]}),
        (("1-4", 2), ("1-6", 3), {"0001-aaa": ["0001-bbb"], "0003-aaa": ["0001-bbb", "0004-bbb"]}),
        (("1-4", 2), ("2-5", 2), {"0001-aaa": ["0002-bbb"], "0003-aaa": ["0002-bbb", "0004-bbb"]}),
    ],
)  # fmt: skip
def test_frame_by_frame_waits_for_the_chunks_that_render_its_numbers(er: Any, on: Any, expected: Any) -> None:
    depend = {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"}
    assert links(build({"aaa": er, "bbb": on}, depend)) == expected


@pytest.mark.parametrize(("er", "on"), [(("1-4", 4), "1-4"), ("1-4", ("1-4", 9))])
def test_frame_by_frame_with_a_one_chunk_layer_is_layer_on_layer(er: Any, on: Any) -> None:
    made = build({"aaa": er, "bbb": on}, {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"})
    assert made.depends.type == ["LAYER_ON_LAYER"]


@pytest.mark.parametrize(
    ("er", "on", "expected"),
    [
        ("1-7x3", "1-7x3", {"0004-aaa": ["0001-bbb"], "0007-aaa": ["0004-bbb"]}),
        ("3-1", "3-1", {"0002-aaa": ["0003-bbb"], "0001-aaa": ["0002-bbb"]}),
        ("2-4", "1-3", {"0002-aaa": ["0001-bbb"], "0003-aaa": ["0002-bbb"], "0004-aaa": ["0003-bbb"]}),
        ("2-0", "3-1", {"0002-aaa": ["0003-bbb"], "0001-aaa": ["0002-bbb"], "0000-aaa": ["0001-bbb"]}),
        (("1-6", 2), ("1-6", 2), {"0003-aaa": ["0001-bbb"], "0005-aaa": ["0003-bbb"]}),
    ],
)
def test_previous_frame_waits_for_the_frame_before(er: str, on: str, expected: Any) -> None:
    depend = {"type": "PREVIOUS_FRAME", "deplayer": "aaa", "onlayer": "bbb"}
    assert links(build({"aaa": er, "bbb": on}, depend)) == expected


def test_a_depend_that_is_written_twice_counts_once() -> None:
    depend = {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"}
    one = {"type": "FRAME_ON_FRAME", "depframe": "0001-aaa", "onframe": "0001-bbb"}
    made = build(AB, depend, depend, one)
    assert made.frames.depend_count == [1, 1, 1, 0, 0, 0]
    assert len(made.depends.pk_depend) == 4


LAYER = {"type": "LAYER_ON_LAYER"}
CIRCLES: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    ("itself", AB, [{**LAYER, "deplayer": "aaa", "onlayer": "aaa"}]),
    ("itself by frame", AB, [{"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "aaa"}]),
    ("two layers", AB, [{**LAYER, "deplayer": "aaa", "onlayer": "bbb"},
                        {**LAYER, "deplayer": "bbb", "onlayer": "aaa"}]),
    ("two layers by frame", AB, [{"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"},
                                 {"type": "FRAME_BY_FRAME", "deplayer": "bbb", "onlayer": "aaa"}]),
    ("one frame", AB, [{"type": "FRAME_ON_FRAME", "depframe": "0002-aaa", "onframe": "0003-bbb"},
                       {**LAYER, "deplayer": "bbb", "onlayer": "aaa"}]),
    ("any frame", AB, [{**LAYER, "deplayer": "aaa", "onlayer": "bbb", "anyframe": "true"},
                       {**LAYER, "deplayer": "bbb", "onlayer": "aaa"}]),
    ("own job", AB, [{"type": "LAYER_ON_JOB", "deplayer": "aaa"}]),
    ("job on itself", AB, [{"type": "JOB_ON_JOB"}]),
    ("job on its frame", AB, [{"type": "JOB_ON_FRAME", "onframe": "0001-aaa"}]),
    ("post layer", {"aaa": "1", "post": "1"}, [{**LAYER, "deplayer": "aaa", "onlayer": "post"}]),
    ("three", {**AB, "ccc": "1"}, [{**LAYER, "deplayer": "aaa", "onlayer": "bbb"},
                                   {**LAYER, "deplayer": "bbb", "onlayer": "ccc"},
                                   {**LAYER, "deplayer": "ccc", "onlayer": "aaa"}]),
]  # fmt: skip


@pytest.mark.parametrize(("layers", "depends"), [case[1:] for case in CIRCLES], ids=[case[0] for case in CIRCLES])
def test_a_circle_is_refused(layers: dict[str, Any], depends: list[dict[str, Any]]) -> None:
    assert "wait for each other: " in fault(layers, *depends)


def test_the_circle_is_named() -> None:
    text = fault({**AB, "ccc": "1"}, *CIRCLES[-1][2])
    assert text.endswith("aaa -> bbb -> ccc -> aaa")


def test_a_simulation_that_feeds_itself_frame_by_frame_is_no_circle() -> None:
    made = build(
        AB,
        {"type": "PREVIOUS_FRAME", "deplayer": "aaa", "onlayer": "aaa"},
        {"type": "PREVIOUS_FRAME", "deplayer": "aaa", "onlayer": "bbb"},
        {"type": "FRAME_BY_FRAME", "deplayer": "bbb", "onlayer": "aaa"},
    )
    assert counts(made) == {"0001-aaa": 0, "0002-aaa": 2, "0003-aaa": 2, "0001-bbb": 1, "0002-bbb": 1, "0003-bbb": 1}


def test_any_frame_of_a_layer_that_can_start_is_no_circle() -> None:
    build(
        AB,
        {**LAYER, "deplayer": "aaa", "onlayer": "bbb", "anyframe": "true"},
        {"type": "FRAME_ON_LAYER", "depframe": "0003-bbb", "onlayer": "aaa"},
    )


def test_two_jobs_in_a_circle_are_refused() -> None:
    text = fault(
        {"aaa": "1"}, {"type": "JOB_ON_JOB", "onjob": "other"}, {"type": "JOB_ON_JOB", "depjob": "other"},
        jobs={"other": {"bbb": "1"}},
    )  # fmt: skip
    assert "wait for each other" in text


@pytest.mark.parametrize(
    ("depend", "message"),
    [
        ({"type": "LAYER_ON_MOON", "deplayer": "aaa"}, "not a depend type"),
        ({"deplayer": "aaa"}, "type: is missing"),
        ({**LAYER, "onlayer": "bbb"}, "deplayer: is missing"),
        ({**LAYER, "deplayer": "aaa"}, "onlayer: is missing"),
        ({"type": "FRAME_ON_LAYER", "onlayer": "aaa"}, "depframe: is missing"),
        ({**LAYER, "deplayer": "zzz", "onlayer": "aaa"}, 'no layer "zzz"'),
        ({**LAYER, "deplayer": "aaa", "onlayer": "zzz"}, 'no layer "zzz"'),
        ({"type": "JOB_ON_JOB", "onjob": "gone"}, 'there is no job "gone"'),
        ({"type": "JOB_ON_JOB", "depjob": "gone"}, "not a job of this spec"),
        ({"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onframe": "0009-bbb"}, 'no frame "0009-bbb"'),
        ({"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onframe": "bbb"}, "not a frame name"),
        ({"type": "FRAME_ON_FRAME", "depframe": "0009-aaa", "onframe": "0001-bbb"}, 'no frame "0009-aaa"'),
    ],
)
def test_a_bad_depend_is_named(depend: dict[str, str], message: str) -> None:
    text = fault(AB, depend)
    assert message in text
    assert text.startswith("depend 0")


def test_too_many_frame_depends_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobspec.depends.DEPENDS_MAX", 3)
    assert "over 3 depends" in fault(AB, {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onlayer": "bbb"})


def known_job(finished: bool = False, done: tuple[int, ...] = ()) -> dict[str, KnownJob]:
    frames = {number: KnownFrame(f"old-{number}", number in done) for number in (1, 2, 3)}
    layer = KnownLayer("old-layer", "1-3", 1, len(done) == 3, frames)
    return {f"{PREFIX}old": KnownJob("old-job", finished, {"sim": layer})}


def test_depends_on_a_job_of_the_farm_find_its_keys() -> None:
    made = build(
        {"aaa": "1-3"},
        {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onjob": "old", "onlayer": "sim"},
        {"type": "JOB_ON_JOB", "onjob": f"{PREFIX}OLD"},
        known=known_job(),
    )
    assert set(made.depends.on_job) == {"old-job"}
    assert made.depends.on_frame[1:4] == ["old-1", "old-2", "old-3"]
    assert made.frames.depend_count == [2, 2, 2]


def test_what_is_done_already_is_stored_inactive_and_not_waited_for() -> None:
    depend = {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onjob": "old", "onlayer": "sim"}
    made = build({"aaa": "1-3"}, depend, known=known_job(done=(1,)))
    assert made.depends.active == [True, False, True, True]
    assert made.frames.depend_count == [0, 1, 1]


@pytest.mark.parametrize("kind", ["JOB_ON_JOB", "LAYER_ON_LAYER", "FRAME_BY_FRAME", "LAYER_ON_FRAME"])
def test_nothing_waits_for_a_finished_job(kind: str) -> None:
    depend = {"type": kind, "deplayer": "aaa", "onjob": "old", "onlayer": "sim", "onframe": "0001-sim"}
    made = build({"aaa": "1-3"}, depend, known=known_job(finished=True, done=(1, 2, 3)))
    assert not any(made.depends.active)
    assert made.frames.depend_count == [0, 0, 0]


@pytest.mark.parametrize("kind", ["LAYER_ON_LAYER", "FRAME_BY_FRAME", "LAYER_ON_FRAME"])
def test_work_that_a_finished_job_never_did_is_refused(kind: str) -> None:
    depend = {"type": kind, "deplayer": "aaa", "onjob": "old", "onlayer": "sim", "onframe": "0003-sim"}
    assert "never finished" in fault({"aaa": "1-3"}, depend, known=known_job(finished=True, done=(1, 2)))


def test_a_job_of_the_farm_lacks_what_it_lacks() -> None:
    depend = {"type": "LAYER_ON_LAYER", "deplayer": "aaa", "onjob": "old", "onlayer": "fur"}
    assert 'has no layer "fur"' in fault({"aaa": "1"}, depend, known=known_job())
    depend = {"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onjob": "old", "onframe": "0007-sim"}
    assert 'has no frame "0007-sim"' in fault({"aaa": "1"}, depend, known=known_job())


def test_needs_ask_for_what_depends_name() -> None:
    document = {
        "show": "demo", "shot": "sh01", "user": "anna",
        "jobs": [{"name": "work", "layers": [
            {"name": "aaa", "cmd": "x", "range": "1", "services": "maya,nuke", "limits": ["lic"]}]}],
        "depends": [
            {"type": "FRAME_BY_FRAME", "deplayer": "aaa", "onjob": "old", "onlayer": "Sim-A"},
            {"type": "LAYER_ON_FRAME", "deplayer": "aaa", "onjob": f"{PREFIX}old", "onframe": "1-Sim-A"},
        ],
    }  # fmt: skip
    asked = needs(parse(document), "demo")
    assert asked.services == ["maya", "nuke"]
    assert asked.limits == ["lic"]
    assert f"{PREFIX}work" in asked.job_names
    assert f"{PREFIX}old" in asked.on_jobs
    assert (f"{PREFIX}old", "sim_a") in asked.on_layers
    assert (f"{PREFIX}old", "0001-sim_a") in asked.on_frames


KINDS = st.sampled_from(["LAYER_ON_LAYER", "FRAME_BY_FRAME", "PREVIOUS_FRAME"])
LAYERS = ("aaa", "bbb", "ccc")
DEPENDS = st.lists(
    st.builds(
        lambda kind, er, on, any_frame: {"type": kind, "deplayer": er, "onlayer": on, "anyframe": any_frame},
        KINDS, st.sampled_from(LAYERS), st.sampled_from(LAYERS), st.booleans(),
    ),
    max_size=5,
)  # fmt: skip


@settings(deadline=None)
@given(DEPENDS, st.tuples(*[st.tuples(st.sampled_from(["1-3", "2-5", "4-1"]), st.integers(1, 3)) for _ in LAYERS]))
def test_what_is_accepted_can_run_to_its_end_and_what_is_refused_cannot(
    depends: list[dict[str, Any]], ranges: tuple[Any, ...]
) -> None:
    layers = dict(zip(LAYERS, ranges, strict=True))
    try:
        made = build(layers, *depends)
    except SpecError as error:
        assert "wait for each other" in str(error)  # noqa: PT017
        return
    rows, frames = made.depends, made.frames
    layer_of = dict(zip(frames.pk_frame, frames.pk_layer, strict=True))
    waits = dict.fromkeys(frames.pk_frame, 0)
    closed: set[int] = set()
    done: set[str] = set()
    for number, kind in enumerate(rows.type):
        if not rows.composite[number]:
            for pk in frames.pk_frame:
                if pk == rows.er_frame[number] or (kind == "LAYER_ON_LAYER" and layer_of[pk] == rows.er_layer[number]):
                    waits[pk] += 1
    assert [waits[pk] for pk in frames.pk_frame] == frames.depend_count
    while len(done) < len(frames.pk_frame):
        ready = [pk for pk in frames.pk_frame if pk not in done and not waits[pk]]
        assert ready, "a frame can never start"
        done.update(ready)
        for number, kind in enumerate(rows.type):
            if rows.composite[number] or number in closed:
                continue
            of_layer = [pk in done for pk in frames.pk_frame if layer_of[pk] == rows.on_layer[number]]
            if kind == "FRAME_ON_FRAME":
                over = rows.on_frame[number] in done
            else:
                over = any(of_layer) if rows.any[number] else all(of_layer)
            if over:
                closed.add(number)
                for pk in frames.pk_frame:
                    if pk == rows.er_frame[number] or (
                        kind == "LAYER_ON_LAYER" and layer_of[pk] == rows.er_layer[number]
                    ):
                        waits[pk] -= 1

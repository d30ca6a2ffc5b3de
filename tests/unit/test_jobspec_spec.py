"""The JSON form: defaults, clamps, and one clear error for each thing that can be wrong."""

from __future__ import annotations

import copy
import itertools
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobspec.errors import SpecError, dotted
from jobspec.model import Context, Facility, Service, Show, Submission
from jobspec.resolve import NO_CORE_CAP, NO_GPU_CAP, normalise
from jobspec.spec import JOB_KEYS, LAYER_KEYS

SERVICES = {
    "default": Service("default", False, 100, 0, 3_355_443, 0, 0, 0, 0, 0, "general | desktop"),
    "maya": Service("maya", True, 200, 800, 4_194_304, 1, 2, 1024, 60, 30, "general"),
}
# Widths of the columns that take text of a spec.
WIDTHS = {
    "job": {"str_name": 255, "str_show": 512, "str_shot": 64, "str_user": 32, "str_email": 256, "str_os": 12,
            "str_state": 16, "str_log_dir": 4000},
    "job_env": {"str_key": 2048, "str_value": 2048},
    "layer": {"str_name": 256, "str_tags": 4000, "str_type": 16, "str_services": 128},
    "layer_env": {"str_key": 2048, "str_value": 2048},
    "layer_output": {"str_filespec": 2048},
}  # fmt: skip


def context(**changes: Any) -> Context:
    known: dict[str, Any] = {
        "show": Show("pk-show", "demo", True, False, "pk-folder", "pk-dept"),
        "facilities": [Facility("pk-local", "local", True), Facility("pk-cloud", "cloud", False)],
        "services": SERVICES,
        "limits": {"nuke": "pk-nuke"},
        "log_root": "/logs",
        "now_ms": 1234,
    }
    return Context(**{**known, **changes})


def new_keys() -> Any:
    numbers = itertools.count(1)
    return lambda count: [f"key-{next(numbers)}" for _ in range(count)]


def spec(job: dict[str, Any] | None = None, layer: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    one = {"name": "render", "cmd": "echo #IFRAME#", "range": "1-10", "chunk": 1, **(layer or {})}
    return {"show": "demo", "shot": "sh-01", "user": "Anna", "uid": 1000,
            "jobs": [{"name": "my-Job", "layers": [one], **(job or {})}], **top}  # fmt: skip


def made(document: dict[str, Any], **changes: Any) -> Submission:
    return normalise(document, context(**changes), new_keys())


def layer_row(**layer: Any) -> dict[str, Any]:
    return made(spec(layer=layer)).rows["layer"][0]


def job_row(**job: Any) -> dict[str, Any]:
    return made(spec(job=job)).rows["job"][0]


def refused(document: Any, **changes: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        normalise(document, context(**changes), new_keys())
    assert "\n" not in str(caught.value)
    return caught.value


def test_names_are_those_that_opencue_makes() -> None:
    row = job_row()
    assert row["str_name"] == "demo-sh_01-anna_my_job"
    assert (row["str_user"], row["str_shot"], row["str_show"]) == ("Anna", "sh_01", "demo")
    assert row["str_log_dir"] == f"/logs/demo/sh_01/logs/demo-sh_01-anna_my_job--{row['pk_job']}"
    assert job_row(name="demo-sh_01-anna_my-job")["str_name"] == "demo-sh_01-anna_my_job"
    assert layer_row(name="Comp-A")["str_name"] == "comp_a"


def test_an_empty_job_gets_these_defaults() -> None:
    row = job_row()
    wanted = {
        "str_state": "PENDING", "b_paused": False, "b_autoeat": False, "int_priority": 1, "int_max_retries": 1,
        "int_max_cores": NO_CORE_CAP, "int_max_gpus": NO_GPU_CAP, "str_os": None, "pk_facility": "pk-local",
        "int_uid": 1000, "int_frame_count": 10, "int_layer_count": 1,
    }  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted


def test_what_the_spec_says_is_stored() -> None:
    row = job_row(paused="True", priority="50", maxretries=3, maxcores="64", maxgpus=2, autoeat="yes", os="rocky9")
    wanted = {"b_paused": True, "int_priority": 50, "int_max_retries": 3, "int_max_cores": 6400, "int_max_gpus": 2,
              "b_autoeat": True, "str_os": "rocky9"}  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted
    assert made(spec(facility="Cloud")).rows["job"][0]["pk_facility"] == "pk-cloud"


def test_a_paused_show_pauses_its_jobs() -> None:
    show = Show("pk-show", "demo", True, True, "pk-folder", "pk-dept")
    assert made(spec(), show=show).rows["job"][0]["b_paused"] is True


@pytest.mark.parametrize(("given", "stored"), [(-3, 0), (0, 0), (16, 16), (99, 16)])
def test_retries_are_clamped(given: int, stored: int) -> None:
    result = made(spec(job={"maxretries": given}))
    assert result.rows["job"][0]["int_max_retries"] == stored
    assert bool(result.warnings) == (given != stored)


@pytest.mark.parametrize(
    ("cores", "points"),
    [
        ("2.0", 200), (Decimal("1.5"), 150), (0.5, 50), ("0.25", 25), (250, 250), ("100", 100), ("10", 10),
        ("9", 100), ("1", 100), ("0.05", 100), ("0.001", 100), (0, 0), ("0.0", 0), (-200, -200), ("-1.0", -100),
    ],
)  # fmt: skip
def test_cores_with_a_point_are_cores_and_without_core_points(cores: Any, points: int) -> None:
    assert layer_row(cores=cores)["int_cores_min"] == points


@pytest.mark.parametrize(
    ("memory", "kib"),
    [
        ("512m", 524288),
        ("0.5g", 524288),
        ("1.5M", 262144),
        ("4g", 4194304),
        (4, 4194304),
        ("0", 262144),
        ("3 g", 3145728),
    ],
)
def test_memory_is_gib_unless_it_says_m_and_never_below_256_mib(memory: Any, kib: int) -> None:
    assert layer_row(memory=memory)["int_mem_min"] == kib


def test_gpu_memory_has_no_minimum_and_an_old_name() -> None:
    assert layer_row(gpu_memory="1m")["int_gpu_mem_min"] == 1024
    assert layer_row(gpu="2g")["int_gpu_mem_min"] == 2097152


def test_the_first_known_service_decides_what_the_layer_leaves_open() -> None:
    row = layer_row(services=["unknown", "maya"])
    assert row["str_services"] == "unknown,maya"
    wanted = {"int_cores_min": 200, "int_cores_max": 800, "int_mem_min": 4194304, "int_gpus_min": 1, "int_gpus_max": 2,
              "int_gpu_mem_min": 1024, "int_timeout": 60, "int_timeout_llu": 30, "str_tags": "general",
              "b_threadable": True}  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted


def test_a_layer_of_unknown_services_gets_the_default_one() -> None:
    row = layer_row(services=["shell"])
    assert row["str_services"] == "shell,default"
    assert (row["int_cores_min"], row["int_mem_min"], row["str_tags"]) == (100, 3355443, "general | desktop")
    assert made(spec(), services={}).rows["layer"][0]["int_mem_min"] == 3355443


def test_a_show_may_override_a_service() -> None:
    own = {"maya": SERVICES["maya"]._replace(cores_min=400)}
    assert made(spec(layer={"services": ["maya"]}), show_services=own).rows["layer"][0]["int_cores_min"] == 400


def test_a_layer_under_one_core_is_not_threadable() -> None:
    assert layer_row(cores="0.5", threadable=True)["b_threadable"] is False
    assert layer_row(cores=0, threadable=True)["b_threadable"] is True


def test_tags_limits_env_and_outputs_become_rows() -> None:
    result = made(spec(
        job={"env": {"A": "1", "B": None}},
        layer={"tags": "linux|gpu.big", "limits": ["nuke", "nuke"], "env": {"C": 3}, "outputs": {"a": "/a", "b": "/a"}},
    ))  # fmt: skip
    assert result.rows["layer"][0]["str_tags"] == "linux | gpu.big"
    assert [row["pk_limit_record"] for row in result.rows["layer_limit"]] == ["pk-nuke"]
    assert [(row["str_key"], row["str_value"]) for row in result.rows["job_env"]] == [("A", "1"), ("B", "")]
    assert [(row["str_key"], row["str_value"]) for row in result.rows["layer_env"]] == [("C", "3")]
    assert [row["str_filespec"] for row in result.rows["layer_output"]] == ["/a"]


def test_frames_carry_number_name_and_order() -> None:
    frames = made(spec(layer={"range": "1-10,-2", "chunk": 4})).frames
    assert frames.number == [1, 5, 9]
    assert frames.name == ["0001-render", "0005-render", "0009-render"]
    assert frames.dispatch_order == [0, 1, 2]
    assert made(spec(layer={"range": "3-7", "chunk": 50})).frames.number == [3]


def test_post_layers_become_a_job_of_their_own() -> None:
    document = spec(job={"env": {"A": "1"}, "paused": True})
    document["jobs"][0]["layers"] += [
        {"name": "clean", "type": "Post", "cmd": "rm", "range": "1"},
        {"name": "third", "cmd": "x", "range": "1-2"},
    ]
    result = made(document)
    main, post = result.rows["job"]
    assert post["str_name"] == "demo-sh_01-anna_my_job_post_job_1234"
    assert (post["str_state"], post["str_user"], post["int_max_retries"]) == ("POSTED", "monitor", 2)
    assert post["b_paused"] is False
    assert (main["int_layer_count"], main["int_frame_count"]) == (2, 12)
    assert (post["int_layer_count"], post["int_frame_count"]) == (1, 1)
    assert [(row["str_name"], row["int_dispatch_order"]) for row in result.rows["layer"]] == [
        ("render", 1), ("clean", 2), ("third", 3)]  # fmt: skip
    env = {row["str_key"]: row["str_value"] for row in result.rows["job_env"] if row["pk_job"] == post["pk_job"]}
    assert env == {"A": "1", "CUE_PARENT_JOB_ID": main["pk_job"], "CUE_PARENT_JOB": main["str_name"]}
    assert result.rows["job_post"] == [{"pk_job": main["pk_job"], "pk_post_job": post["pk_job"]}]


LONG = "x" * 3000
BAD_LAYERS = [
    ({"range": "1-x"}, "layers[0].range", "not a frame range"),
    ({"range": ""}, "layers[0].range", "is missing"),
    ({"range": "1-3y1"}, "layers[0].range", "names no frame"),
    ({"range": "1-100001"}, "layers[0].range", "100,001 frames"),
    ({"range": "1-5000000"}, "layers[0].range", "more than"),
    ({"chunk": 0}, "layers[0].chunk", "out of bounds"),
    ({"chunk": "two"}, "layers[0].chunk", "not a number"),
    ({"cmd": " "}, "layers[0].cmd", "is missing"),
    ({"name": "ab"}, "layers[0].name", "not a name"),
    ({"name": "a b c"}, "layers[0].name", "not a name"),
    ({"name": "n" * 252}, "layers[0].name", "252 characters"),
    ({"type": "Sim"}, "layers[0].type", "not a layer type"),
    ({"cores": "1000.5"}, "layers[0].cores", "out of bounds"),
    ({"cores": 100001}, "layers[0].cores", "out of bounds"),
    ({"cores": "two"}, "layers[0].cores", "not a number"),
    ({"cores": "nan"}, "layers[0].cores", "not a number"),
    ({"cores": True}, "layers[0].cores", "not a number"),
    ({"memory": "16385g"}, "layers[0].memory", "out of bounds"),
    ({"memory": "-1g"}, "layers[0].memory", "out of bounds"),
    ({"memory": "9999999999999999999999g"}, "layers[0].memory", "not an amount"),
    ({"memory": "4t"}, "layers[0].memory", "not an amount"),
    ({"gpu_memory": "99999g"}, "layers[0].gpu_memory", "out of bounds"),
    ({"gpu_memory": "1g", "gpu": "1g"}, "layers[0].gpu", "old name"),
    ({"gpus": -1}, "layers[0].gpus", "out of bounds"),
    ({"gpus": 5000}, "layers[0].gpus", "out of bounds"),
    ({"timeout": -1}, "layers[0].timeout", "out of bounds"),
    ({"threadable": "maybe"}, "layers[0].threadable", "not a yes or no"),
    ({"tags": "ab"}, "layers[0].tags", "not a tag"),
    ({"tags": "general desktop"}, "layers[0].tags", "not a tag"),
    ({"tags": ["tag(1"]}, "layers[0].tags", "not a tag"),
    ({"limits": ["gone"]}, "layers[0].limits", "not a limit"),
    ({"services": ["s" * 30 + str(i) for i in range(5)]}, "layers[0].services", "together"),
    ({"services": ["s" * 37]}, "layers[0].services", "37 characters"),
    ({"env": {"A": LONG}}, "layers[0].env A", "3000 characters"),
    ({"env": {"A=B": "1"}}, "layers[0].env", "not a name"),
    ({"env": {"A": []}}, "layers[0].env", "is a list"),
    ({"env": ["A"]}, "layers[0].env", "is a list"),
    ({"outputs": [LONG]}, "layers[0].outputs", "3000 characters"),
    ({"memroy": "4g"}, "layers[0]", "not known"),
    ({"cmd": {"a": 1}}, "layers[0].cmd", "is an object"),
]  # fmt: skip
BAD_JOBS = [
    ({"name": ""}, "name", "is missing"),
    ({"name": "a/b"}, "name", "not a name"),
    ({"name": "n" * 250}, "name", "a job name of"),
    ({"layers": []}, "layers", "no layers"),
    ({"layers": None}, "layers", "no layers"),
    ({"layers": ["x"]}, "layers[0]", "is a string"),
    ({"layers": [{"name": "abc", "cmd": "x", "range": "1", "type": "Post"}]}, "layers", "Post layers"),
    ({"layers": [{"name": n, "cmd": "x", "range": "1"} for n in ("a-b", "A_B")]}, "layers[1].name", "two layers"),
    ({"layers": [{"name": f"l{i:04d}", "cmd": "x", "range": "1"} for i in range(2001)]}, "layers", "2001 layers"),
    (
        {"layers": [{"name": f"lay{i}", "cmd": "x", "range": "1-30000"} for i in range(4)]},
        "layers[3].range",
        "120,000",
    ),
    ({"priority": -1}, "priority", "out of bounds"),
    ({"priority": "high"}, "priority", "not a number"),
    ({"maxcores": 0}, "maxcores", "out of bounds"),
    ({"maxcores": "0.5"}, "maxcores", "out of bounds"),
    ({"maxcores": 10**9}, "maxcores", "out of bounds"),
    ({"maxgpus": -1}, "maxgpus", "out of bounds"),
    ({"os": "x" * 13}, "os", "13 characters"),
    ({"paused": "later"}, "paused", "not a yes or no"),
    ({"env": {"K": LONG}}, "env K", "3000 characters"),
]
BAD_SPECS = [
    ({"show": ""}, "show", "is missing"),
    ({"shot": ""}, "shot", "is missing"),
    ({"shot": ".."}, "shot", "not a name"),
    ({"shot": "a/b"}, "shot", "not a name"),
    ({"shot": "s" * 65}, "shot", "65 characters"),
    ({"user": None}, "user", "is missing"),
    ({"user": "root"}, "user", "root may not"),
    ({"user": "u" * 33}, "user", "33 characters"),
    ({"uid": 0}, "uid", "0 may not"),
    ({"uid": -1}, "uid", "out of bounds"),
    ({"uid": "me"}, "uid", "not a number"),
    ({"email": "e" * 257}, "email", "257 characters"),
    ({"facility": "moon"}, "facility", "not a facility"),
    ({"jobs": []}, "jobs", "no job"),
    ({"jobs": "x"}, "jobs[0]", "is a string"),
    ({"shwo": "x"}, "", "not known"),
]


@pytest.mark.parametrize(("layer", "path", "message"), BAD_LAYERS, ids=lambda v: str(v)[:40])
def test_a_bad_layer_is_named(layer: dict[str, Any], path: str, message: str) -> None:
    error = refused(spec(layer=layer))
    assert dotted(error.path) == f"jobs[0].{path}".split(" ")[0] or dotted(error.path) == f"jobs[0].{path}"
    assert message in error.message
    assert error.hint
    assert "job my-Job" in str(error)


@pytest.mark.parametrize(("job", "path", "message"), BAD_JOBS, ids=lambda v: str(v)[:40])
def test_a_bad_job_is_named(job: dict[str, Any], path: str, message: str) -> None:
    error = refused(spec(job=job))
    assert dotted(error.path).startswith(f"jobs[0].{path}".split(" ")[0])
    assert message in error.message
    assert error.hint


@pytest.mark.parametrize(("top", "path", "message"), BAD_SPECS, ids=lambda v: str(v)[:40])
def test_a_bad_spec_is_named(top: dict[str, Any], path: str, message: str) -> None:
    error = refused(spec(**top))
    assert dotted(error.path) == path
    assert message in error.message
    assert error.hint


@pytest.mark.parametrize("document", [None, [], "x", 3, {"spec": []}, {}])
def test_what_is_no_object_is_refused(document: Any) -> None:
    assert refused(document).hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"show": None}, "not a show"),
        ({"show": Show("pk", "demo", False, False, "f", "d")}, "not active"),
        ({"show": Show("pk", "demo", True, False, None, None)}, "no root folder"),
        ({"facilities": []}, "no default"),
        ({"pending": {"demo-sh_01-anna_my_job"}}, "is pending"),
    ],
)
def test_a_farm_that_cannot_take_it_says_so(changes: dict[str, Any], message: str) -> None:
    assert message in refused(spec(), **changes).message


def test_two_jobs_of_a_spec_may_not_share_a_name() -> None:
    document = spec()
    document["jobs"].append(copy.deepcopy(document["jobs"][0]))
    assert "two jobs" in refused(document).message


def test_a_layer_that_its_own_job_can_never_run_is_refused() -> None:
    assert "maxcores" in refused(spec(job={"maxcores": 2}, layer={"cores": "4.0"})).message
    assert "maxgpus" in refused(spec(job={"maxgpus": 0}, layer={"gpus": 1})).message
    assert made(spec(job={"maxgpus": 0})).rows["job"][0]["int_max_gpus"] == NO_GPU_CAP


def test_what_is_ignored_is_told() -> None:
    document = spec(job={"localbook": "given"}, dept="fx")
    document["depends"] = []
    assert len(made(document).warnings) == 2


TEXT = st.text(max_size=400)
SMALL = st.one_of(TEXT, st.integers(-(10**12), 10**12), st.none(), st.booleans(), st.lists(TEXT, max_size=3),
                  st.dictionaries(TEXT, TEXT, max_size=3))  # fmt: skip
NAME = st.from_regex(r"[A-Za-z_.-]{1,300}", fullmatch=True)


@settings(deadline=None, max_examples=300)
@given(
    st.fixed_dictionaries({"name": NAME}, optional=dict.fromkeys(JOB_KEYS[1:-2], SMALL)),
    st.fixed_dictionaries({"name": NAME}, optional=dict.fromkeys(LAYER_KEYS[1:], SMALL)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("show", "shot", "user", "email", "uid", "facility"), SMALL)),
)
def test_anything_is_refused_with_an_error_of_ours_or_fits_its_columns(
    job: dict[str, Any], layer: dict[str, Any], top: dict[str, Any]
) -> None:
    try:
        result = made(spec(job=job, layer=layer, **top))
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    for table, widths in WIDTHS.items():
        for row in result.rows[table]:
            for column, width in widths.items():
                assert len(row[column] or "") <= width, (table, column)
    assert all(len(name) <= 256 for name in result.frames.name)

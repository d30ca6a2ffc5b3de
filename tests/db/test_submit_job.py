"""maestro.submit_job: a spec lands in the right rows, a bad one leaves none."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from cli.main import cli
from db.errors import MaestroError
from submit import api
from tests.db import farm
from tests.pyoutline_spec import serialize

Connection = psycopg.Connection[Any]

# Every table that a submission writes.
TABLES = (
    "job", "job_env", "job_post", "job_stat", "job_resource", "job_usage", "job_mem", "job_history", "layer",
    "layer_env", "layer_limit", "layer_output", "layer_stat", "layer_resource", "layer_usage", "layer_mem",
    "layer_history", "frame",
    "depend", "point",
)  # fmt: skip
LIMIT = "insert into limit_record (pk_limit_record, str_name, int_max_value) values ('lim-1', 'nuke', 5)"


def layer(name: str = "render", frames: str = "1-10", **more: Any) -> dict[str, Any]:
    return {"name": name, "cmd": "echo #IFRAME#", "range": frames, "chunk": 1, **more}


def spec(*layers: dict[str, Any], name: str = "work", depends: Any = (), **job: Any) -> dict[str, Any]:
    return {"show": "demo", "shot": "sh01", "user": "anna", "uid": 1000,
            "jobs": [{"name": name, "layers": list(layers) or [layer()], **job}], "depends": list(depends)}  # fmt: skip


def submit(db: Connection, document: Any) -> list[dict[str, Any]]:
    row = db.execute("select maestro.submit_job(%s)", [json.dumps(document)]).fetchone()
    assert row is not None
    jobs: list[dict[str, Any]] = row[0]["jobs"]
    return jobs


def refused(db: Connection, document: Any) -> psycopg.Error:
    """The error of a refused spec; nothing of it may be stored."""
    before = stored(db)
    with pytest.raises(psycopg.Error) as caught:
        submit(db, document)
    assert stored(db) == before
    assert caught.value.sqlstate == "QM001"
    assert "\n" not in (caught.value.diag.message_primary or "")
    assert caught.value.diag.message_hint
    return caught.value


def stored(db: Connection) -> list[Any]:
    counts = [db.execute(f"select count(*) from {table}").fetchone() for table in TABLES]  # type: ignore[arg-type]
    return [*counts, db.execute("select * from show_stats").fetchall()]


def rows(db: Connection, query: str, *values: Any) -> list[Any]:
    return db.execute(query, values).fetchall()  # type: ignore[arg-type]


def balanced(db: Connection) -> None:
    assert rows(db, "select * from maestro.check_accounting()") == []


def succeed(db: Connection, frames: list[str]) -> None:
    """Let frames end well, as a completion would."""
    db.execute(
        "update frame set str_state = 'RUNNING', int_version = int_version + 1 where pk_frame = any(%s)", [frames]
    )
    db.execute(
        "update frame set str_state = 'SUCCEEDED', int_version = int_version + 1 where pk_frame = any(%s)", [frames]
    )
    db.execute(
        "select maestro.settle(%s, array(select distinct pk_layer from frame where pk_frame = any(%s)), now())",
        [frames, frames],
    )


def frame_keys(db: Connection, pk_job: str) -> dict[str, str]:
    return dict(rows(db, "select str_name, pk_frame from frame where pk_job = %s", pk_job))


def test_a_full_spec_lands_in_the_right_rows(db: Connection) -> None:
    db.execute(LIMIT)
    jobs = submit(db, spec(
        layer("render", "1-10", chunk=4, cores="2.0", memory="4g", threadable=True, gpus=1, gpu_memory="1g", timeout=60,
              timeout_llu=30, tags="general | gpu", limits=["nuke"], env={"L": "1"}, services=["maya"],
              outputs={"main": "/out/a.exr"}),
        layer("comp", "1-10", type="Util"),
        priority=50, maxretries=3, maxcores=64, maxgpus=8, autoeat=True, os="rocky9", env={"J": "2"},
        depends=[{"type": "FRAME_BY_FRAME", "deplayer": "comp", "onlayer": "render"}],
    ))  # fmt: skip
    pk_job = jobs[0]["pk_job"]
    assert jobs == [{"pk_job": pk_job, "name": "demo-sh01-anna_work", "frames": 13, "layers": 2}]
    assert rows(
        db,
        "select j.str_name, str_visible_name, str_show, str_shot, str_user, int_uid, str_state, str_os, str_log_dir,"
        " b_paused, b_autoeat, int_max_retries, int_frame_count, int_layer_count, pk_facility, f.pk_parent_folder,"
        " j.pk_dept = f.pk_dept from job j join folder f using (pk_folder)",
    ) == [(
        "demo-sh01-anna_work", "demo-sh01-anna_work", "demo", "sh01", "anna", 1000, "PENDING", "rocky9",
        f"/var/lib/maestro/logs/demo/sh01/logs/demo-sh01-anna_work--{pk_job}",
        False, True, 3, 13, 2, "00000000-0000-0000-0000-0000000000f1", None, True,
    )]  # fmt: skip
    assert rows(db, "select int_priority, int_max_cores, int_max_gpus from job_resource") == [(50, 6400, 8)]
    assert rows(db, "select str_key, str_value from job_env") == [("J", "2")]
    render = rows(
        db,
        "select str_cmd, str_range, int_chunk_size, int_dispatch_order, int_cores_min, int_mem_min, str_tags, str_type,"
        " b_threadable, str_services, int_gpus_min, int_gpu_mem_min, int_timeout, int_timeout_llu"
        " from layer where str_name = 'render'",
    )
    assert render == [("echo #IFRAME#", "1-10", 4, 1, 200, 4194304, "general | gpu", "RENDER", True, "maya", 1, 1048576,
                       60, 30)]  # fmt: skip
    assert rows(db, "select str_key, str_value from layer_env") == [("L", "1")]
    assert rows(db, "select pk_limit_record, str_source from layer_limit") == [("lim-1", "SPEC")]
    assert rows(db, "select str_filespec from layer_output") == [("/out/a.exr",)]
    frames = rows(
        db,
        "select str_name, str_state, int_number, int_depend_count, int_dispatch_order, int_layer_order, int_version,"
        " int_exit_status, ts_eligible is not null from frame order by int_dispatch_order, int_layer_order",
    )
    assert frames[:5] == [
        ("0001-render", "WAITING", 1, 0, 0, 1, 0, -1, True),
        ("0001-comp", "DEPEND", 1, 1, 0, 2, 0, -1, False),
        ("0005-render", "WAITING", 5, 0, 1, 1, 0, -1, True),
        ("0002-comp", "DEPEND", 2, 1, 1, 2, 0, -1, False),
        ("0009-render", "WAITING", 9, 0, 2, 1, 0, -1, True),
    ]
    assert rows(db, "select int_total_count, int_waiting_count, int_depend_count from layer_stat order by 1") == [
        (3, 3, 0), (10, 0, 10)]  # fmt: skip
    assert rows(db, "select int_waiting_count, int_depend_count from job_stat") == [(3, 10)]
    assert rows(db, "select str_type, count(*), count(pk_parent), bool_and(b_active), max(str_target) from depend"
                    " group by 1 order by 1") == [
        ("FRAME_BY_FRAME", 1, 0, True, "INTERNAL"), ("FRAME_ON_FRAME", 10, 10, True, "INTERNAL")]  # fmt: skip
    assert rows(db, "select int_frame_insert_count, int_job_insert_count from show_stats") == [(13, 1)]
    balanced(db)


def test_a_job_without_caps_is_not_capped(db: Connection) -> None:
    submit(db, spec())
    [(cores, gpus)] = rows(db, "select int_max_cores, int_max_gpus from job_resource")
    assert cores >= 100_000_000
    assert gpus >= 100_000


def test_frames_run_when_what_they_wait_for_is_done(db: Connection) -> None:
    [job] = submit(db, spec(layer(), layer("comp"), layer("last", "1"), depends=[
        {"type": "FRAME_BY_FRAME", "deplayer": "comp", "onlayer": "render"},
        {"type": "LAYER_ON_LAYER", "deplayer": "last", "onlayer": "comp"}]))  # fmt: skip
    keys = frame_keys(db, job["pk_job"])
    succeed(db, [keys["0003-render"]])
    waiting = "select str_name from frame where str_state = 'WAITING' and str_name not like '%%render'"
    assert rows(db, waiting) == [("0003-comp",)]
    succeed(db, [pk for name, pk in keys.items() if name.endswith("render") and name != "0003-render"])
    succeed(db, [pk for name, pk in keys.items() if name.endswith("comp")])
    assert rows(db, waiting) == [("0001-last",)]
    succeed(db, [keys["0001-last"]])
    assert rows(db, "select str_state, str_visible_name from job") == [("FINISHED", None)]
    assert rows(db, "select count(*) from depend where b_active") == [(0,)]
    balanced(db)


def test_post_layers_run_when_their_job_is_over(db: Connection) -> None:
    main, post = submit(db, spec(layer(frames="1"), layer("clean", "1-2", type="Post"), maxretries=0))
    assert (main["frames"], main["layers"], post["frames"], post["layers"]) == (1, 1, 2, 1)
    assert post["name"].startswith("demo-sh01-anna_work_post_job_")
    assert rows(db, "select pk_job, pk_post_job from job_post") == [(main["pk_job"], post["pk_job"])]
    state = "select str_state, str_user, int_max_retries from job where pk_job = %s"
    assert rows(db, state, post["pk_job"]) == [("POSTED", "monitor", 2)]
    succeed(db, list(frame_keys(db, main["pk_job"]).values()))
    assert rows(db, state, post["pk_job"])[0][0] == "PENDING"
    env = dict(rows(db, "select str_key, str_value from job_env where pk_job = %s", post["pk_job"]))
    assert env == {"CUE_PARENT_JOB_ID": main["pk_job"], "CUE_PARENT_JOB": main["name"]}
    balanced(db)


def test_jobs_of_one_spec_may_wait_for_each_other(db: Connection) -> None:
    document = spec(layer(frames="1-3"))
    document["jobs"].append({"name": "second", "layers": [layer(frames="1-2")]})
    document["depends"] = [{"type": "JOB_ON_JOB", "depjob": "second", "onjob": "work"}]
    one, two = submit(db, document)
    assert rows(db, "select distinct str_state from frame where pk_job = %s", two["pk_job"]) == [("DEPEND",)]
    assert rows(db, "select str_target from depend") == [("EXTERNAL",)]
    succeed(db, list(frame_keys(db, one["pk_job"]).values()))
    assert rows(db, "select distinct str_state from frame where pk_job = %s", two["pk_job"]) == [("WAITING",)]
    balanced(db)


def test_a_depend_on_a_running_job_waits_for_what_is_left(db: Connection) -> None:
    [old] = submit(db, spec(layer("sim", "1-3"), name="old"))
    keys = frame_keys(db, old["pk_job"])
    succeed(db, [keys["0001-sim"]])
    submit(db, spec(layer(frames="1-3"), depends=[
        {"type": "FRAME_BY_FRAME", "deplayer": "render", "onjob": "old", "onlayer": "sim"}]))  # fmt: skip
    states = "select str_name, str_state from frame where str_name like '%%render' order by 1"
    assert [state for _, state in rows(db, states)] == ["WAITING", "DEPEND", "DEPEND"]
    succeed(db, [keys["0002-sim"], keys["0003-sim"]])
    assert {state for _, state in rows(db, states)} == {"WAITING"}
    balanced(db)


def test_nothing_waits_for_a_job_that_is_over(db: Connection) -> None:
    [old] = submit(db, spec(layer("sim", "1-3"), name="old"))
    succeed(db, list(frame_keys(db, old["pk_job"]).values()))
    submit(db, spec(layer(), depends=[
        {"type": "JOB_ON_JOB", "onjob": old["name"]},
        {"type": "LAYER_ON_LAYER", "deplayer": "render", "onjob": "old", "onlayer": "sim"},
        {"type": "LAYER_ON_FRAME", "deplayer": "render", "onjob": "old", "onframe": "0002-sim"}]))  # fmt: skip
    assert rows(db, "select distinct str_state from frame where str_name like '%%render'") == [("WAITING",)]
    assert rows(db, "select count(*), count(ts_satisfied), bool_or(b_active) from depend") == [(3, 3, False)]
    balanced(db)


def test_a_frame_that_ends_between_the_look_and_the_insert_is_not_waited_for(db: Connection) -> None:
    """What store_submission is given says that the frame runs; by the time it stores, the frame is done."""
    [old] = submit(db, spec(layer("sim", "1-2"), name="old"))
    submit(db, spec(layer(frames="1-2"), depends=[
        {"type": "FRAME_BY_FRAME", "deplayer": "render", "onjob": "old", "onlayer": "sim"}]))  # fmt: skip
    keys = frame_keys(db, old["pk_job"])
    # The completion did not see the depend: no settle.
    db.execute("update frame set str_state = 'RUNNING' where pk_frame = %s", [keys["0001-sim"]])
    db.execute("update frame set str_state = 'SUCCEEDED' where pk_frame = %s", [keys["0001-sim"]])
    closed = rows(db, "select maestro.settle_depends(array(select pk_depend from depend where not b_composite))")
    assert closed == [(1,)]
    states = rows(db, "select str_state from frame where str_name like '%%render' order by str_name")
    assert states == [("WAITING",), ("DEPEND",)]
    balanced(db)


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown show", {**spec(), "show": "nope"}, 'show: "nope" is not a show', "show"),
    ("unknown facility", {**spec(), "facility": "moon"}, 'facility: "moon" is not a facility', "facility"),
    ("root", {**spec(), "user": "root"}, "user: root may not submit", "user"),
    ("uid 0", {**spec(), "uid": 0}, "uid: 0 may not submit", "uid"),
    ("no layers", spec(layers=[]), "job work, layers: the job has no layers", "jobs[0].layers"),
    ("bad range", spec(layer(frames="1-1x")), 'layer render, range: "1-1x" is not', "jobs[0].layers[0].range"),
    ("unknown limit", spec(layer(limits=["gone"])), 'limits: "gone" is not a limit', "jobs[0].layers[0].limits"),
    ("long name", spec(name="n" * 250), "makes a job name of", "jobs[0].name"),
    ("two layers of a name", spec(layer(), layer()), "two layers named", "jobs[0].layers[1].name"),
    ("cores", spec(layer(cores=100001)), 'cores: "100001" is out of bounds', "jobs[0].layers[0].cores"),
    ("memory", spec(layer(memory="99999g")), 'memory: "99999g" is out of bounds', "jobs[0].layers[0].memory"),
    ("missing layer", spec(depends=[{"type": "LAYER_ON_LAYER", "deplayer": "render", "onlayer": "fur"}]),
     'depend 0, onlayer: job demo-sh01-anna_work has no layer "fur"', "depends[0].onlayer"),
    ("missing job", spec(depends=[{"type": "JOB_ON_JOB", "onjob": "gone"}]),
     'there is no job "gone"', "depends[0].onjob"),
    ("circle", spec(layer("aaa"), layer("bbb"), depends=[
        {"type": "LAYER_ON_LAYER", "deplayer": "aaa", "onlayer": "bbb"},
        {"type": "FRAME_BY_FRAME", "deplayer": "bbb", "onlayer": "aaa"}]),
     "depends: wait for each other: aaa -> bbb -> aaa", "depends"),
    ("too many frames", spec(layer("aaa", "1-60000"), layer("bbb", "1-60000")), "120,000 frames",
     "jobs[0].layers[1].range"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "message", "path"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_spec_is_refused_in_one_line_and_leaves_nothing(
    db: Connection, document: dict[str, Any], message: str, path: str
) -> None:
    error = refused(db, document)
    assert message in (error.diag.message_primary or "")
    assert error.diag.message_detail == path
    balanced(db)


@pytest.mark.parametrize("document", [None, [], "text", 5, {}])
def test_what_is_no_spec_is_refused(db: Connection, document: Any) -> None:
    refused(db, document)


def test_a_null_spec_is_refused(db: Connection) -> None:
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select maestro.submit_job(null)")
    assert caught.value.sqlstate == "QM001"


def test_a_name_is_taken_while_its_job_lives(db: Connection) -> None:
    [job] = submit(db, spec(layer(frames="1")))
    assert "is pending" in str(refused(db, spec()))
    succeed(db, list(frame_keys(db, job["pk_job"]).values()))
    submit(db, spec())
    balanced(db)


def test_of_two_that_submit_one_name_at_once_one_is_refused(db: Connection, dsn: str) -> None:
    """The second waits for the first's insert, and is told so rather than shown a broken index."""
    answers: list[Any] = []

    def second() -> None:
        with psycopg.connect(dsn, autocommit=True, application_name="second") as other:
            try:
                answers.append(submit(other, spec()))
            except psycopg.Error as error:
                answers.append(error)

    thread = threading.Thread(target=second)
    with psycopg.connect(dsn) as first:
        submit(first, spec())
        thread.start()
        waits = "select 1 from pg_stat_activity where application_name = 'second' and wait_event_type = 'Lock'"
        while thread.is_alive() and not rows(db, waits):
            thread.join(0.01)
        first.commit()
    thread.join(30)
    assert answers[0].sqlstate == "QM001"
    assert "same name" in str(answers[0])
    assert rows(db, "select count(*) from job") == [(1,)]
    balanced(db)


def test_an_inactive_show_takes_no_jobs_and_a_paused_one_pauses_them(db: Connection) -> None:
    db.execute("update show set b_paused = true")
    submit(db, spec())
    assert rows(db, "select b_paused from job") == [(True,)]
    db.execute("update show set b_active = false")
    assert "not active" in str(refused(db, spec(name="other")))


def test_a_show_goes_by_its_alias_too(db: Connection) -> None:
    db.execute("insert into show_alias (pk_show_alias, pk_show, str_name) select 'a-1', pk_show, 'dm' from show")
    [job] = submit(db, {**spec(), "show": "dm"})
    assert job["name"] == "demo-sh01-anna_work"


def test_services_of_the_farm_and_of_the_show_decide_what_is_left_open(db: Connection) -> None:
    db.execute(
        "insert into show_service"
        " (pk_show_service, pk_show, str_name, b_threadable, int_cores_min, int_mem_min, str_tags)"
        " select 's-1', pk_show, 'maya', true, 300, 1048576, 'desktop' from show"
    )
    submit(db, spec(layer(services=["maya"]), layer("plain")))
    found = rows(db, "select int_cores_min, int_mem_min, str_tags, str_services from layer order by str_name")
    assert found == [(100, 3355443, "general | desktop", "default"), (300, 1048576, "desktop", "maya")]


def test_a_department_without_a_point_row_gets_one(db: Connection) -> None:
    db.execute("delete from point")
    submit(db, spec())
    assert rows(db, "select count(*) from point") == [(1,)]
    balanced(db)


def test_a_hundred_thousand_frames_are_one_submission(db: Connection) -> None:
    [job] = submit(db, spec(layer(frames="1-50000"), layer("comp", "1-50000"), depends=[
        {"type": "FRAME_BY_FRAME", "deplayer": "comp", "onlayer": "render"}]))  # fmt: skip
    assert job["frames"] == 100_000
    assert rows(db, "select str_state, count(*), sum(int_depend_count) from frame group by 1 order by 1") == [
        ("DEPEND", 50_000, 50_000), ("WAITING", 50_000, 0)]  # fmt: skip
    assert rows(db, "select count(*) from depend where b_active") == [(50_001,)]
    [(wrong,)] = rows(
        db,
        "select count(*) from depend d join frame er on er.pk_frame = d.pk_frame_depend_er"
        " join frame o on o.pk_frame = d.pk_frame_depend_on where er.int_number <> o.int_number",
    )
    assert wrong == 0
    balanced(db)


def test_ticks_go_on_while_a_large_job_is_submitted_and_take_it_up_at_once_after_it(db: Connection, dsn: str) -> None:
    """P70: other work ends and is booked meanwhile."""
    farm.add_host(db, "host1", cores=8)
    submit(db, spec(layer(frames="1-5000"), name="before"))
    large = spec(layer(frames="1-10000"), layer("comp", "1-10000"), name="large")
    with psycopg.connect(dsn, autocommit=True) as other:
        submitting = threading.Thread(target=submit, args=(other, large))
        submitting.start()
        ticks = 0
        while submitting.is_alive():
            farm.tick(db)
            ended = rows(db, "select pk_proc, pk_frame from proc")
            farm.call(db, "report_completion", [farm.completion(db, *run, host="host1") for run in ended])
            ticks += 1
        assert ticks > 1
    farm.add_host(db, "host2", cores=64)
    farm.tick(db)
    assert rows(db, "select from proc join job using (pk_job) where str_name like '%%large%%' limit 1")
    balanced(db)


def test_a_spec_of_pyoutline_is_submitted(db: Connection, tmp_path: Path) -> None:
    path = tmp_path / "spec.xml"
    path.write_bytes(serialize(tmp_path))
    answer = api.submit_file(db, path)
    assert answer["jobs"][0]["name"] == "demo-sh01-anna_pyoutline_job"
    found = rows(
        db, "select str_name, int_cores_min, int_chunk_size, str_services from layer order by int_dispatch_order"
    )
    assert [row[:3] for row in found] == [("render", 200, 2), ("comp", 100, 1), ("last", 100, 1)]
    assert rows(db, "select str_state, count(*) from frame group by 1 order by 1") == [("DEPEND", 11), ("WAITING", 5)]
    assert rows(db, "select str_name, int_depend_count from frame where str_name = '0002-comp'") == [("0002-comp", 1)]
    balanced(db)


XML = """<?xml version="1.0"?>
<!DOCTYPE spec PUBLIC "SPI Cue  Specification Language" "http://localhost:8080/spcue/dtd/cjsl-1.15.dtd">
<spec><show>demo</show><shot>sh01</shot><user>anna</user>
  <job name="work">
    <layers>
      <layer name="render" type="Render">
        <cmd>true</cmd>
        <range>RANGE</range><chunk>1</chunk>
      </layer>
    </layers>
  </job>
</spec>
"""


def test_a_fault_found_by_the_database_names_file_and_line(db: Connection, tmp_path: Path) -> None:
    path = tmp_path / "spec.xml"
    path.write_text(XML.replace("RANGE", "1-x"))
    with pytest.raises(MaestroError) as caught:
        api.submit_file(db, path)
    text = str(caught.value)
    assert text.startswith(f"{path}: line 8: job work, layer render, range: ")
    assert "\n" not in text
    assert api.submit_spec(db, spec())["jobs"][0]["frames"] == 10
    with pytest.raises(MaestroError, match="No such file"):
        api.submit_file(db, tmp_path / "gone.xml")
    path.write_text('{"show": "de\\u0000mo"}')
    with pytest.raises(MaestroError, match="NUL"):
        api.submit_file(db, path)


def test_the_command_prints_the_ids(db: Connection, dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.xml"
    path.write_text(XML.replace("RANGE", "1-3"))
    done = CliRunner().invoke(cli, ["--dsn", dsn, "submit", str(path)])
    assert done.exit_code == 0, done.output
    assert [(done.stdout.strip(),)] == rows(db, "select pk_job from job")
    piped = CliRunner().invoke(cli, ["--dsn", dsn, "submit", "-", "--json"], input=json.dumps(spec(name="other")))
    assert piped.exit_code == 0, piped.output
    last = json.loads(piped.stdout.splitlines()[-1])
    assert last["jobs"][0]["name"] == "demo-sh01-anna_other"
    bad = CliRunner().invoke(cli, ["--dsn", dsn, "submit", "-"], input="{}")
    assert isinstance(bad.exception, MaestroError)
    assert str(bad.exception).startswith("standard input: show: is missing")

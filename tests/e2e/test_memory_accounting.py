"""Idle memory is whole the moment a job ends, with stock RQDs: what is booked is what is given back, to the KiB."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from db.cluster import Cluster
from db.install import install
from demo import run
from submit.api import submit_file

from .conftest import wait_for

SPEC = """\
<?xml version="1.0"?>
<spec>
  <facility>local</facility><show>demo</show><shot>books</shot><user>tester</user><uid>65534</uid>
  <job name="books">
    <paused>False</paused><maxretries>0</maxretries>
    <layers>
      <layer name="echo" type="Render">
        <cmd>echo frame #IFRAME#</cmd><range>1-10</range><chunk>1</chunk><cores>1</cores>
        <threadable>False</threadable><memory>{echo}</memory><services><service>shell</service></services>
      </layer>
      <layer name="sleep" type="Render">
        <cmd>sleep 1</cmd><range>1-4</range><chunk>1</chunk><cores>1</cores>
        <threadable>False</threadable><memory>{sleep}</memory><services><service>shell</service></services>
      </layer>
    </layers>
  </job>
</spec>
"""


# 512 MiB and 256 MiB are the sizes with which one writer's units once cost a farm 12,288 and 6,144 KiB a frame.
@pytest.mark.parametrize(("echo", "sleep"), [("512m", "256m"), ("333m", "1g")])
def test_idle_memory_is_whole_the_moment_the_job_ends(var: Path, echo: str, sleep: str) -> None:
    run.clear()
    cluster = Cluster.default()
    cluster.start()
    (var / "books.xml").write_text(SPEC.format(echo=echo, sleep=sleep))
    with psycopg.connect(cluster.dsn(), autocommit=True) as db:
        install(db, standalone=True)
        run.configure(db)
        with run.farm_process(cluster.dsn(), run.start_ticking(db)):
            run.await_hosts(db)
            whole = db.execute("select str_name, int_mem, int_mem_idle from public.host order by 1").fetchall()
            assert all(total == idle for _, total, idle in whole)
            pk_job = submit_file(db, str(var / "books.xml"))["jobs"][0]["pk_job"]

            def ended() -> list[tuple[str, int, int]]:
                # One statement, one snapshot: the state of the job and the memory of the hosts at the same moment.
                return db.execute(
                    "select h.str_name, h.int_mem, h.int_mem_idle from public.host h, public.job j"
                    " where j.pk_job = %s and j.str_state = 'FINISHED' order by 1",
                    [pk_job],
                ).fetchall()

            assert wait_for("the job's end", ended) == whole
            states = db.execute(
                "select str_state, count(*) from public.frame where pk_job = %s group by 1", [pk_job]
            ).fetchall()
            assert states == [("SUCCEEDED", 14)]
            assert db.execute("select * from maestro.check_accounting()").fetchall() == []

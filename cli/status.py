"""`maestro status`: the farm on one screen."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from db.connection import connect
from db.errors import MaestroError, from_database

WATCH_SECONDS = 1.0
LAUNCHER_ALIVE_SECONDS = 15
LONGEST_LIST = 12  # rows of the waitlist that fit a screen

FARM = """
    select count(*) filter (where hs.str_state = 'UP' and h.str_lock_state = 'OPEN') as hosts_open,
           count(*) filter (where hs.str_state <> 'UP') as hosts_down,
           count(*) filter (where hs.str_state = 'UP' and h.str_lock_state <> 'OPEN') as hosts_locked,
           round(coalesce(sum(h.int_cores) filter (where hs.str_state = 'UP'), 0) / 100.0, 1)::float as cores,
           round(coalesce(sum(h.int_cores - h.int_cores_idle) filter (where hs.str_state = 'UP'), 0) / 100.0, 1)::float
               as cores_booked,
           round(coalesce(sum(h.int_mem) filter (where hs.str_state = 'UP'), 0) / 1048576.0, 1)::float as memory_gib,
           round(coalesce(sum(h.int_mem - h.int_mem_idle) filter (where hs.str_state = 'UP'), 0) / 1048576.0, 1)::float
               as memory_gib_booked,
           (select count(*) from public.proc) as procs
      from public.host h join public.host_stat hs on hs.pk_host = h.pk_host
"""
WAITLIST = """
    select reason, count(*) as layers, sum(waiting_frames)::bigint as frames
      from maestro.waitlist group by reason order by frames desc
"""
LAUNCHERS = """
    select launcher_id, hostname, pid, version, draining,
           round(extract(epoch from now() - heartbeat_at)::numeric, 1)::float as heard_seconds_ago
      from maestro.launcher order by launcher_id
"""
QUEUES = """
    select (select count(*) from maestro.launch where state = 'ready') as launches_ready,
           (select count(*) from maestro.launch where state = 'claimed') as launches_claimed,
           (select count(*) from maestro.completion) as completions
"""
LAST_TICK = """
    select tick_id, started_at, status, planned, committed, ms::float as ms,
           round(extract(epoch from now() - started_at)::numeric, 1)::float as seconds_ago, stats -> 'errors' as errors
      from maestro.tick order by tick_id desc limit 1
"""
RESERVATIONS = "select count(*) as hosts from maestro.reservation"


@click.command()
@click.option("--watch", is_flag=True, help="Go on showing it until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
@click.pass_context
def status(ctx: click.Context, watch: bool, as_json: bool) -> None:
    """Farm fill, waitlist, reservations, launchers and the stat line."""
    with connect(ctx.obj["dsn"]) as connection:
        if as_json:
            click.echo(json.dumps(read(connection), default=_plain))
        elif watch:
            with Live(screen=False, auto_refresh=False) as live:
                try:
                    while True:
                        live.update(draw(read(connection)), refresh=True)
                        time.sleep(WATCH_SECONDS)
                except KeyboardInterrupt:
                    return
        else:
            Console().print(draw(read(connection)))


def read(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """What is shown, as plain data. Raises MaestroError if Maestro is not installed in this database."""
    with connection.cursor(row_factory=dict_row) as cursor:

        def rows(query: str) -> list[dict[str, Any]]:
            return cursor.execute(query).fetchall()

        try:
            with connection.transaction():
                found: dict[str, Any] = {
                    "farm": rows(FARM)[0],
                    "mode": rows("select maestro.setting('mode') as mode")[0]["mode"],
                    "waitlist": rows(WAITLIST),
                    "launchers": rows(LAUNCHERS),
                    "queues": rows(QUEUES)[0],
                    "last_tick": (rows(LAST_TICK) or [None])[0],  # type: ignore[list-item]
                }
                has = rows(
                    "select to_regclass('maestro.reservation') is not null as reservation,"
                    " to_regprocedure('maestro.stat_line(interval)') is not null as stat_line"
                )[0]
                found["reservations"] = rows(RESERVATIONS)[0]["hosts"] if has["reservation"] else 0
                found["stat_line"] = rows("select maestro.stat_line() as line")[0]["line"] if has["stat_line"] else None
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise MaestroError(
                f"Maestro is not installed in database {connection.info.dbname}; install it first (maestro install)"
            ) from None
        except psycopg.Error as error:
            raise from_database(error) from error
    return found


def draw(found: dict[str, Any]) -> Group:
    """The screen."""
    farm, queues, tick = found["farm"], found["queues"], found["last_tick"]
    filled = farm["cores_booked"] / farm["cores"] if farm["cores"] else 0.0
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("farm", f"{_bar(filled)} {farm['cores_booked']:g} of {farm['cores']:g} cores booked ({filled:.1%})")
    grid.add_row(
        "hosts", f"{farm['hosts_open']} open, {farm['hosts_locked']} locked, {farm['hosts_down']} down; "
        f"{farm['procs']} frames booked, {farm['memory_gib_booked']:g} of {farm['memory_gib']:g} GiB reserved",
    )  # fmt: skip
    grid.add_row("mode", str(found["mode"]))
    if tick:
        grid.add_row(
            "last tick", f"{tick['tick_id']}, {tick['seconds_ago']:g} s ago: {tick['status']}, "
            f"booked {tick['committed']} of {tick['planned']} in {tick['ms']:g} ms",
        )  # fmt: skip
        for error in tick["errors"] or []:
            grid.add_row("", Text(f"{error['what']}: {error['message']}", style="red"))
    else:
        grid.add_row("last tick", Text("none yet: maestro schedule, or maestro tick", style="yellow"))
    if found["stat_line"]:
        grid.add_row("stat line", Text(str(found["stat_line"])))
    grid.add_row(
        "queues", f"{queues['launches_ready']} launches to send, {queues['launches_claimed']} being sent, "
        f"{queues['completions']} completions to apply; {found['reservations']} hosts reserved",
    )  # fmt: skip
    if not found["launchers"]:
        grid.add_row("launchers", Text("none", style="yellow"))
    for number, launcher in enumerate(found["launchers"]):
        silent = launcher["heard_seconds_ago"] > LAUNCHER_ALIVE_SECONDS
        words = "silent" if silent else "draining" if launcher["draining"] else "alive"
        grid.add_row(
            "" if number else "launchers",
            Text(
                f"{launcher['launcher_id']} on {launcher['hostname']} (pid {launcher['pid']}, {launcher['version']}): "
                f"{words}, heard {launcher['heard_seconds_ago']:g} s ago",
                style="red" if silent else "",
            ),
        )
    waits = Table("waits for", "layers", "frames", box=None, header_style="bold", padding=(0, 2))
    for row in found["waitlist"][:LONGEST_LIST]:
        waits.add_row(row["reason"], str(row["layers"]), str(row["frames"]))
    return Group(grid, "", waits) if found["waitlist"] else Group(grid)


def _bar(share: float, width: int = 24) -> str:
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return float(value)

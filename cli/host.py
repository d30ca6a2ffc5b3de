"""`maestro host`: list, lock and drain hosts. Each command calls one function of schema maestro."""

from __future__ import annotations

import click

from cli.job import act, as_json_option, ask, say, table

LIST = """
    select h.str_name as name, h.pk_host as id, s.str_state as state,
           case when d.pk_host is not null then 'DRAINING' else h.str_lock_state end as lock, a.str_name as alloc,
           h.int_cores / 100.0 as cores, h.int_cores_idle / 100.0 as idle_cores,
           round(h.int_mem / 1048576.0, 1) as mem_gib, round(h.int_mem_idle / 1048576.0, 1) as idle_mem_gib,
           h.int_gpus as gpus, h.int_gpus_idle as idle_gpus,
           (select count(*) from proc p where p.pk_host = h.pk_host) as frames,
           round(extract(epoch from now() - s.ts_ping)) as silent_seconds,
           coalesce(d.reason, h.str_lock_source) as reason
      from host h
      join host_stat s on s.pk_host = h.pk_host
      join alloc a on a.pk_alloc = h.pk_alloc
      left join maestro.host_drain d on d.pk_host = h.pk_host
     order by h.str_name
"""


@click.group()
def host() -> None:
    """List, lock, unlock and drain hosts. HOST is a host's name or id."""


@host.command("list")
@as_json_option
@click.pass_context
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """Every host: state, lock, what of it is idle, and when it was heard of."""
    rows = ask(ctx, LIST)
    if as_json:
        say(True, {"hosts": rows}, "")
    else:
        table(rows)


@host.command()
@click.argument("name", metavar="HOST")
@click.option("--reason", default="locked by an operator", show_default=True, help="Shown by `host list`.")
@as_json_option
@click.pass_context
def lock(ctx: click.Context, name: str, reason: str, as_json: bool) -> None:
    """Start nothing new on the host; what runs goes on."""
    say(as_json, {"pk_host": act(ctx, "lock_host", name, reason)}, f"locked {name}")


@host.command()
@click.argument("name", metavar="HOST")
@as_json_option
@click.pass_context
def unlock(ctx: click.Context, name: str, as_json: bool) -> None:
    """Open a locked host."""
    say(as_json, {"pk_host": act(ctx, "unlock_host", name)}, f"unlocked {name}")


@host.command()
@click.argument("name", metavar="HOST")
@click.option("--reason", default="drained by an operator", show_default=True, help="Shown by `host list`.")
@as_json_option
@click.pass_context
def drain(ctx: click.Context, name: str, reason: str, as_json: bool) -> None:
    """Let the host's frames end, then have its RQD restart."""
    say(as_json, {"pk_host": act(ctx, "drain_host", name, reason)}, f"draining {name}")


@host.command()
@click.argument("name", metavar="HOST")
@as_json_option
@click.pass_context
def undrain(ctx: click.Context, name: str, as_json: bool) -> None:
    """End a drain and open the host."""
    say(as_json, {"pk_host": act(ctx, "undrain_host", name)}, f"undrained {name}")

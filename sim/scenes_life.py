"""Scenarios about frames in the world: processes that die, hosts that vanish, reports that come twice, late or never.

The real launcher, ticks and a fake farm run; faults are made while the farm is loaded.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

from db.errors import MaestroError
from sim import script, world
from sim.verify import Bar, Live, Numbers, Scenario, World

CORES = 32


def _hosts(count: int) -> list[world.Host]:
    return [world.host(f"host{number:04d}", CORES, CORES * 4) for number in range(1, count + 1)]


def _load(live: Live, frames: int, run_s: float, name: str = "load", **env: str) -> int:
    """Submit jobs of `frames` one-core frames of about `run_s` seconds; returns how many."""
    share = max(frames // 4, 1)
    for number in range(4):
        script.submit(
            live.connection, f"{name}{number}",
            [script.layer("render", share, env={"SIM_RUN_S": f"{run_s * 0.7}-{run_s * 1.3}", **env})],
        )  # fmt: skip
    return share * 4


def _frames_for(given: World, hosts: int, run_s: float, quick: int) -> int:
    """Frames that keep the hosts busy for the seconds asked for."""
    return quick if given.quick else max(int(hosts * CORES * given.seconds / max(run_s, 1.0)), quick)


def _outcome(live: Live, total: int) -> Numbers:
    """What every scenario here tells: all done, each frame run once at a time, nothing lost."""
    totals = live.stage.farm.stats()
    found = script.states(live.connection)
    return {
        "frames": total, "done": found["SUCCEEDED"] / total, "dead": found["DEAD"], "doubles": totals["doubles"],
        "overbooked": totals["overbooked"], "launched": totals["launched"], "unreported": totals["unreported"],
        "extra_launches": totals["launched"] - total - totals["vanished"],
        "retries": live.one("select coalesce(sum(int_retries), 0)::int from public.frame"),
        "lost_ends": totals["ended"] - found["SUCCEEDED"] - live.one("select count(*) from maestro.completion"),
        "tick_errors": sum(len(answer.get("errors", ())) for answer in live.stage.ticks.answers),
    }  # fmt: skip


def oom(given: World) -> Numbers:
    """Layers that need six times the memory they ask for. In the control run frames learn, and layers do not."""
    frames, need_mib = given.size(400, 80), 3000
    threshold: dict[str, object] = {"oom_layer_escalate_threshold": 1000} if given.control else {}
    with given.live(_hosts(8), settings=threshold) as live:
        layers = [
            script.layer(
                f"hungry{number}", frames // 4, memory_mib=512,
                env={"SIM_RUN_S": "0.5", "SIM_RSS_KIB": str(need_mib * 1024)},
            )
            for number in range(4)
        ]  # fmt: skip
        script.submit(live.connection, "hungry", layers)
        took = live.finish(frames)
        numbers = _outcome(live, frames)
        least = live.one("select min(int_mem_min) from public.layer")
        numbers |= {"memory_failures": numbers["extra_launches"], "least_mib": least / 1024, "seconds": took}
    return numbers


def launcher_crash(given: World) -> Numbers:
    """The launcher is killed while it holds claims, again and again, and its supervisor starts it again.

    In the control run claims never expire.
    """
    hosts, run_s, kills, patience_s = 10, 1.0, given.size(5, 2), 31.0
    total = _frames_for(given, hosts, run_s, 2500)
    expire: dict[str, object] = {"launch_claim_seconds": 3600 if given.control else 5}
    # A frame may end, and its host give up telling that, while no launcher is there: then its log tells.
    with given.live(_hosts(hosts), settings=expire, launcher={"claim_batch": 50}, logs=True) as live:
        _load(live, total, run_s)
        launcher = live.stage.launchers[0]
        held, slowest = 0, 0.0
        for number in range(kills):
            done = live.done()
            live.until("frames end", lambda done=done: live.done() > done + hosts * CORES // 2)  # type: ignore[misc]
            live.until(
                "claims held", lambda: live.one("select count(*) from maestro.launch where state = 'claimed'"), 20
            )
            held += live.one("select count(*) from maestro.launch where state = 'claimed'")
            given.say(f"kill {number + 1} of {kills}")
            launcher.kill()
            claims = live.one("select coalesce(array_agg(launch_id), '{}') from maestro.launch where state = 'claimed'")
            launcher.start_again()
            took = live.waited(
                lambda claims=claims: not live.one(  # type: ignore[misc]
                    "select count(*) from maestro.launch where launch_id = any(%s) and state <> 'refused'"
                    " and claimed_by is distinct from (select max(launcher_id) from maestro.launcher)", claims
                ),
                patience_s,
            )
            slowest = max(slowest, took)
            if slowest > patience_s:
                break
        else:
            live.finish(total)
        numbers = _outcome(live, total)
    return {**numbers, "kills": kills, "claims_held": held, "recovered_s": slowest}


def db_restart(given: World) -> Numbers:
    """PostgreSQL crashes and comes back while the farm works.

    In the control run the launcher's spool is lost meanwhile, as if it kept what it is told in its memory.
    """
    hosts, run_s = 10, 1.0
    total = _frames_for(given, hosts, run_s, 2000)
    with given.live(_hosts(hosts)) as live:
        _load(live, total, run_s)
        live.until("frames end", lambda: live.done() > hosts * CORES)
        ticks = live.stage.ticks
        given.say("crashing PostgreSQL")
        given.lab.cluster.stop("immediate")
        time.sleep(3.0)  # how long it is away
        launcher = live.stage.launchers[0]
        if given.control:
            launcher.kill()
            for spool in live.stage.directory.glob("*.spool*"):
                shutil.rmtree(spool) if spool.is_dir() else spool.unlink()
        seen = len(ticks.answers)
        began = time.monotonic()
        given.lab.cluster.start()
        live.reconnect()
        live.until("ticks resume", lambda: len(ticks.answers) > seen)
        back = time.monotonic() - began
        if given.control:
            launcher.start_again()
        booked = live.done()
        live.until("frames end again", lambda: live.done() > booked)
        works = time.monotonic() - began
        if given.control:
            # What ended meanwhile would run again, once its host shows that it is gone.
            live.waited(lambda: not live.stage.farm.stats()["running"], 20.0)
        else:
            live.finish(total)
        numbers = _outcome(live, total)
    return {**numbers, "ticks_after_s": back, "frames_after_s": works, "ticks_after": len(ticks.answers) - seen}


def host_loss(given: World) -> Numbers:
    """A fifth of the hosts goes away amid its frames, and comes back later. The control run never misses them."""
    hosts, run_s, down_s, patience_s = 10, 1.5, 10, 30.0
    total = _frames_for(given, hosts, run_s, 3000)
    # Launchers give up a host well before it counts as lost, as with the settings that a farm has.
    quick: dict[str, object] = {"launch_confirm_seconds": 1, "host_down_seconds": 3600 if given.control else down_s}
    with given.live(_hosts(hosts), settings=quick, launcher={"launch_deadline_s": 1.0}, report_s=1.0) as live:
        _load(live, total, run_s)
        live.until("frames end", lambda: live.done() > hosts * CORES)
        lost = [f"host{number:04d}" for number in range(1, hosts // 5 + 1)]
        live.until(
            "they are busy",
            lambda: sum(host in lost for host in live.stage.farm.tell("running")["running"].values()) > CORES,
        )
        given.say(f"{len(lost)} hosts go away")
        live.stage.farm.tell("crash", lost)
        on_them = "select count(*) from public.proc join public.host as h using (pk_host) where h.str_name = any(%s)"
        took = live.waited(lambda: not live.one(on_them, lost), patience_s)
        if took > patience_s:
            return {**_outcome(live, total), "released_s": took}
        given.say("they come back")
        live.stage.farm.tell("back", lost)
        used_again = 0
        try:
            live.until("the hosts are used again", lambda: live.one(on_them, lost), 20)
            used_again = 1
        except MaestroError:
            given.say("no work was left for them")
        live.finish(total)
        numbers = _outcome(live, total)
        down = live.one("select count(*) from public.host_stat where str_state <> 'UP'")
        vanished = live.stage.farm.stats()["vanished"]
    return {**numbers, "vanished": vanished, "released_s": took, "used_again": used_again, "hosts_down": down}


def double_render(given: World) -> Numbers:
    """Answers lost, reports late and repeated, retries in the middle: no frame ever runs twice at a time.

    The control run frees frames that it retries without waiting for the end of their runs.
    """
    hosts, run_s = 10, 2.0
    total = _frames_for(given, hosts, run_s, 1500)
    with given.live(
        _hosts(hosts), launcher={"launch_deadline_s": 1.0, "confirm_gap_s": 0.5},
        repeat=0.5, late=0.2, late_s=2.0, logs=True,
    ) as live:
        total = _load(live, total, run_s) + _load(live, 80, 8.0, "long")
        live.until("frames end", lambda: live.done() > 20)
        deaf = [f"host{number:04d}" for number in (2, 5)]
        live.stage.farm.tell("fault", deaf, fault="lose answer")
        retried: set[tuple[str, int]] = set()
        for turn in range(given.size(6, 3)):
            done = live.done()
            live.until("frames end", lambda done=done: live.done() > done + 50)  # type: ignore[misc]
            # Long frames that have just begun.
            frames = live.connection.execute(
                "select f.pk_job, f.int_number, p.pk_proc from public.frame as f join public.proc as p using (pk_frame)"
                " join public.job as j on j.pk_job = f.pk_job"
                " left join maestro.launch as l on l.pk_proc = p.pk_proc where f.str_state = 'RUNNING'"
                " and l.pk_proc is null and j.str_name like '%%long%%' order by f.ts_started desc limit 5"
            ).fetchall()
            for pk_job, number, pk_proc in frames:
                if (pk_job, number) in retried:
                    continue
                if given.control:
                    killed = live.one("select maestro.unbook(%s::text[], 286)", [pk_proc])
                else:
                    killed = live.one(
                        "select maestro.retry_frames(%s, 'render', %s::int[], '{RUNNING}')", pk_job, [number]
                    )["killed"]
                if killed:
                    retried.add((pk_job, number))
            given.say(f"turn {turn + 1}: {len(retried)} frames retried")
        live.stage.farm.tell("fault", deaf, fault="none")
        live.finish(total)
        live.until("late reports are in", lambda: not live.one("select count(*) from maestro.completion"))
        numbers = _outcome(live, total)
        kills = live.stage.farm.stats()["killed"]
    again = len(retried)
    return {**numbers, "retried": again, "killed": kills, "extra_launches": numbers["launched"] - total - again}


def completion_storm(given: World) -> Numbers:
    """Everything that runs ends at the same moment. In the control run a tick takes few ends."""
    hosts = given.size(160, 48)
    total = hosts * CORES
    few: dict[str, object] = {"completions_per_tick_max": 10} if given.control else {}
    with given.live(_hosts(hosts), settings=few, report_s=10.0) as live:
        _load(live, total, 3600.0)
        live.until(
            "the farm is full", lambda: live.stage.farm.stats()["running"] >= total, 120
        )
        given.say(f"{total:,} frames end at once")
        live.stage.farm.tell("finish")
        took = live.until("all ends are reported", lambda: live.stage.farm.stats()["reported"] >= total, 120)
        seen = len(live.stage.ticks.answers)
        live.waited(lambda: live.done() >= total or len(live.stage.ticks.answers) > seen + 20, 60)
        ticks = len(live.stage.ticks.answers) - seen
        if not given.control:
            live.finish(total)
        numbers = _outcome(live, total)
        totals: dict[str, Any] = live.stage.farm.stats()
    return {
        **numbers, "reported": totals["reported"], "reported_per_s": total / took, "ticks_to_drain": ticks,
    }  # fmt: skip


ONCE = (
    Bar("done", at_least=1), Bar("doubles", at_most=0), Bar("overbooked", at_most=0), Bar("tick_errors", at_most=0),
)  # fmt: skip

SCENARIOS = (
    Scenario(
        "OOM", "Layers that ask for too little memory are raised until their frames fit; none is given up.", oom,
        (*ONCE, Bar("dead", at_most=0), Bar("least_mib", at_least=3000)), ("memory_failures",), ("least_mib",),
        quick=True,
    ),
    Scenario(
        "LAUNCHER_CRASH", "A launcher killed with claims in hand loses nothing and renders nothing twice.",
        launcher_crash, (*ONCE, Bar("extra_launches", at_most=0), Bar("retries", at_most=0),
                         Bar("recovered_s", at_most=30)), ("claims_held",), ("recovered_s",),
    ),
    Scenario(
        "DB_RESTART", "A crash of PostgreSQL stops the farm for as long as it is away, and costs nothing.", db_restart,
        (*ONCE, Bar("extra_launches", at_most=0), Bar("retries", at_most=0), Bar("unreported", at_most=0),
         Bar("lost_ends", at_most=0), Bar("ticks_after_s", at_most=30), Bar("frames_after_s", at_most=45)),
        ("ticks_after",), ("lost_ends",), quick=True,
    ),
    Scenario(
        "HOST_LOSS", "Frames of lost hosts run elsewhere with no retry spent; hosts that return are used.", host_loss,
        (*ONCE, Bar("extra_launches", at_most=0), Bar("retries", at_most=0), Bar("released_s", at_most=20),
         Bar("hosts_down", at_most=0)), ("vanished", "used_again"), ("released_s",),
    ),
    Scenario(
        "DOUBLE_RENDER", "Lost answers, late and repeated reports, and retries never make a frame run twice.",
        double_render, (*ONCE, Bar("extra_launches", at_least=0, at_most=0)), ("retried", "killed"), ("doubles",),
    ),
    Scenario(
        "COMPLETION_STORM", "Every frame of the farm ends at once: all ends are taken, and a few ticks are through.",
        completion_storm, (*ONCE, Bar("extra_launches", at_most=0), Bar("unreported", at_most=0),
                           Bar("ticks_to_drain", at_most=5)), ("reported",), ("ticks_to_drain",), quick=True,
    ),
)  # fmt: skip

"""Scenarios about memory: that none is lost, that frames get what they use, and that it does not strand cores."""

from __future__ import annotations

from collections import Counter

from planner.units import kib_from_gib
from sim import script, world
from sim.inline import End, Inline
from sim.verify import Bar, Numbers, Scenario, World


def memory_drift(given: World) -> Numbers:
    """Odd sizes, growing frames, repeated ends: after all of it every host has its memory back, to the KiB."""
    frames = given.size(10_000, 2_000)
    hosts = world.uniform(32, 20, 100.3)
    with given.database(hosts) as connection:
        sizes = [257, 777, 1234, 3333, 5001]
        script.submit(
            connection, "drifters",
            [script.layer(f"mem{size}", frames // len(sizes), memory_mib=size) for size in sizes],
        )  # fmt: skip
        farm = Inline(
            connection, seconds=lambda booked: farm.random.uniform(20, 90),
            ending=lambda booked: End(
                status=33 if farm.random.random() < 0.02 else 0, rss=farm.random.randrange(100_000, booked.mem + 1),
                reports=farm.random.choice((1, 1, 2)),
            ),
        )  # fmt: skip
        grown = uneven = 0
        for step in range(2000):
            farm.tick()
            before = script.one(connection, "select coalesce(sum(int_mem_reserved), 0) from public.proc")
            farm.report_hosts(
                hosts, lambda one: one.mem + 12_288 if farm.random.random() < 0.2 else one.mem // 3
            )
            grown += script.one(connection, "select coalesce(sum(int_mem_reserved), 0) from public.proc") > before
            uneven += script.one(
                connection,
                "select count(*) from public.host as h left join lateral (select sum(p.int_mem_reserved) as mem"
                " from public.proc as p where p.pk_host = h.pk_host) as s on true"
                " where h.int_mem_idle + coalesce(s.mem, 0) <> h.int_mem",
            )
            farm.advance(30)
            if step % 5 == 0:
                given.say(f"{farm.ended:,} of {frames:,} frames ended")
            if not farm.running and script.states(connection)["WAITING"] == 0:
                break
        farm.drain()
        if given.control:  # a KiB that nobody gives back
            connection.execute("update public.host set int_mem_idle = int_mem_idle - 1 where str_name = 'host0001'")
        drift = script.one(connection, "select sum(abs(int_mem - int_mem_idle)) from public.host")
        cores = script.one(connection, "select sum(abs(int_cores - int_cores_idle)) from public.host")
        done = script.states(connection)["SUCCEEDED"]
    return {
        "frames_ended": farm.ended, "done": done / frames, "grown": grown, "drift_kib": float(drift),
        "drift_core_points": float(cores), "uneven_hosts": uneven,
    }  # fmt: skip


def strandgrow(given: World) -> Numbers:
    """Frames that ask for one core and 1 GiB, and use 18 GiB: a probe shows it, later ones get the cores it is worth.

    Beside them the same as one-core programs, which no core more would help. The control run does not size.
    """
    used, hosts = kib_from_gib(18), world.uniform(32, 20)  # 4 GiB a core: 18 GiB are worth 4.5 cores, so 5
    with given.database(hosts) as connection:
        if given.control:
            script.set_values(connection, memory_sizing="false")
        script.submit(connection, "flood", [script.layer("render", 3000, memory_mib=1024, threadable=True)])
        script.submit(connection, "single", [script.layer("render", 24, memory_mib=1024)])
        farm = Inline(connection, seconds=lambda one: farm.random.uniform(120, 240), ending=lambda one: End(rss=used))
        flood, single = script.full_name("flood"), script.full_name("single")
        sizes: list[Counter[int]] = []  # a step: core points of the flood's new frames
        singles: Counter[int] = Counter()
        busy, over = [], 0.0
        steps = given.size(30, 16)
        for step in range(steps):
            booked = farm.tick()
            sizes.append(Counter(one.cores for one in booked if one.job == flood))
            singles.update(one.cores for one in booked if one.job == single)
            farm.report_hosts(hosts, lambda one: used)
            by_host = Counter(one.host for one in farm.running.values())
            over = max(over, max(by_host.values(), default=0) * used / hosts[0]["mem"])
            if step >= steps // 2:
                busy.append(farm.cores_of() / farm.answers[-1]["cores"])
            given.say(f"step {step + 1}: {farm.cores_of()} cores at work, {len(farm.running)} frames")
            farm.advance(30)
    probe, later = sizes[0], sum(sizes[1:], Counter[int]())
    return {
        "probe_frames": probe[100], "probe_other": probe.total() - probe[100], "grown_frames": later[500],
        "later_other": later.total() - later[500], "single_frames": singles[100],
        "single_other": singles.total() - singles[100], "cores_busy": sum(busy) / len(busy), "memory_peak": over,
    }  # fmt: skip


def memstrand(given: World) -> Numbers:
    """Hosts rich and poor in memory, frames hungry and modest: the hungry go where memory is, so that no cores strand.

    Then hungry ones alone: their memory is all taken, cores stay idle, and ticks tell how many. The control run's score
    does not see memory.
    """
    rich, poor = 8, 24
    hosts = [world.host(f"rich{number:03d}", 32, 256) for number in range(rich)]
    hosts += [world.host(f"poor{number:03d}", 32, 24) for number in range(poor)]
    cores = 32 * (rich + poor)
    with given.database(hosts) as connection:
        if given.control:
            script.set_values(connection, score_weight_mem=0)
        script.submit(connection, "hungry", script.layers(4, 4000, memory_mib=8192), priority=20)
        modest = script.submit(connection, "modest", script.layers(8, 20_000, memory_mib=512), priority=100)
        farm = Inline(connection, seconds=lambda one: farm.random.uniform(60, 180))
        fills, misplaced, hungry = [], 0, 0
        for step in range(given.size(24, 12)):
            for one in farm.tick():
                if one.job == script.full_name("hungry"):
                    hungry += 1
                    misplaced += one.host.startswith("poor")
            fills.append(farm.cores_of() / cores)
            given.say(f"step {step + 1}: {fills[-1]:.1%} of the cores")
            farm.advance(30)
        connection.execute("select maestro.pause_job(%s)", [modest])
        for _ in range(10):
            farm.step(30)
        farm.tick()
        idle = cores - farm.cores_of()
        told = sum(farm.answers[-1]["stranded"].values())
    return {
        "hungry_booked": hungry, "misplaced_share": misplaced / max(hungry, 1), "fill": min(fills[2:]),
        "idle_at_end": idle, "told_wrong": abs(told - idle),
    }  # fmt: skip


SCENARIOS = (
    Scenario(
        "MEMORY_DRIFT", "After thousands of odd frames each host has its memory back, to the KiB.", memory_drift,
        (
            Bar("drift_kib", at_most=0), Bar("drift_core_points", at_most=0), Bar("uneven_hosts", at_most=0),
            Bar("done", at_least=1),
        ),
        ("frames_ended", "grown"), ("drift_kib",), quick=True,
    ),
    Scenario(
        "STRANDGROW", "Frames that need far more memory than they ask for get the cores it is worth, after a probe.",
        strandgrow,
        (
            Bar("probe_frames", at_least=4, at_most=8), Bar("probe_other", at_most=0), Bar("later_other", at_most=0),
            Bar("single_other", at_most=0), Bar("cores_busy", at_least=0.85),
        ),
        ("probe_frames", "grown_frames", "single_frames"), ("later_other", "cores_busy"), quick=True,
    ),
    Scenario(
        "MEMSTRAND", "Hungry frames go where memory is, so that cores are not stranded; what is stranded is told.",
        memstrand,
        (Bar("fill", at_least=0.97), Bar("told_wrong", at_most=0)),
        ("hungry_booked", "idle_at_end"), ("fill",),
    ),
)  # fmt: skip

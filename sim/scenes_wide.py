"""Scenarios about frames too wide for what is idle at any one moment: held hosts, what borrows them, and gpus."""

from __future__ import annotations

from planner.units import kib_from_gib, points_from_cores
from sim import script, world
from sim.inline import Inline
from sim.verify import Bar, Numbers, Scenario, World

STEP_S = 30


def reservations(given: World) -> Numbers:
    """Jobs of 64 and of 128 cores under a flood of small frames, of equal and of higher priority.

    The control run holds no hosts.
    """
    hosts = [world.host(f"large{number:03d}", 128, 512) for number in range(8)]
    hosts += [world.host(f"small{number:03d}", 32, 128) for number in range(8)]
    cores = 8 * (128 + 32)
    with given.database(hosts) as connection:
        if given.control:
            script.set_values(connection, reservations_enabled="false")
        script.submit(connection, "flood", script.layers(12, 60_000), priority=100)
        farm = Inline(connection, seconds=lambda one: 300 if one.cores > 200 else farm.random.uniform(60, 240))
        for _ in range(4):
            farm.step(STEP_S)
        wanted = {"wide64": 6, "wide128": 4, "wide64first": 2, "wide128first": 2}
        for name, frames in wanted.items():
            wide = 64 if "64" in name else 128
            script.submit(
                connection, name, [script.layer("render", frames, wide, 4096)],
                priority=300 if name.endswith("first") else 100,
            )  # fmt: skip
        fills, held = [], 0
        for step in range(100):
            farm.tick()
            fills.append(farm.cores_of() / cores)
            held = max(held, farm.answers[-1]["reservations"]["held"])
            begun = {name: farm.bookings[script.full_name(name)] for name in wanted}
            given.say(f"step {step + 1}: {sum(begun.values())} of {sum(wanted.values())} wide frames have begun")
            farm.advance(STEP_S)
            if begun == wanted or (given.control and step == 60):
                break
        reserved = script.one(connection, "select count(*) from maestro.reservation")
        farm.step(STEP_S)
        farm.step(STEP_S)
        left = script.one(connection, "select count(*) from maestro.reservation")
    started = {size: begun[f"wide{size}"] + begun[f"wide{size}first"] for size in ("64", "128")}
    return {
        "bookings": sum(farm.bookings.values()), "wide64_started": started["64"] / 8,
        "wide128_started": started["128"] / 6, "minutes": farm.now / 60, "most_held": held, "held_at_last": reserved,
        "held_after": left if not given.control else 0, "fill": sum(fills) / len(fills),
    }  # fmt: skip


def backfill(given: World) -> Numbers:
    """Hosts held for frames that wait for memory: short frames use the cores meanwhile, and hold up nobody.

    Long frames have the memory, and end after ten minutes; short ones end after one. The control run lends nothing.
    """
    cores, memory, wide_memory, wide_cores = 32, 128, 96, 16
    with given.database(world.uniform(cores, 12, memory)) as connection:
        script.set_values(connection, reservation_block_seconds=60, host_min_free_mem=0)
        if given.control:
            script.set_values(connection, backfill_enabled="false")
        script.submit(connection, "long", script.layers(4, 4000, memory_mib=24 * 1024), priority=200)
        script.submit(connection, "short", script.layers(6, 30_000), priority=20)
        farm = Inline(
            connection, seconds=lambda one: {"long": 600, "wide": 300}.get(one.job.rpartition("_")[2], 60),
        )  # fmt: skip
        for _ in range(24):  # until runs of both have ended, and how long they take is known
            farm.step(STEP_S)
        script.submit(connection, "wide", [script.layer("render", 60, wide_cores, wide_memory * 1024)], priority=100)
        borrowed, delayed, shares, idle = 0, 0, [], 0
        for step in range(given.size(80, 50)):
            farm.tick()
            borrowed += farm.answers[-1]["backfilled"]
            rows = connection.execute(
                "select h.int_cores_idle, h.int_mem_idle from maestro.reservation join public.host as h using (pk_host)"
            ).fetchall()
            for idle_cores, idle_memory in rows:
                shares.append(1 - idle_cores / points_from_cores(cores))
                has_memory = idle_memory >= kib_from_gib(wide_memory)
                delayed += has_memory and idle_cores < points_from_cores(wide_cores)
                idle += idle_cores >= points_from_cores(wide_cores)
            wide = farm.bookings[script.full_name("wide")]
            given.say(f"step {step + 1}: {wide} wide frames, {borrowed} frames lent {len(rows)} hosts")
            farm.advance(STEP_S)
    return {
        "wide_started": wide, "backfilled": borrowed, "delayed": delayed, "held_host_steps": len(shares),
        "held_cores_used": sum(shares) / max(len(shares), 1),
    }  # fmt: skip


def gpu_strand(given: World) -> Numbers:
    """Work without gpus floods hosts that have some; then gpu work comes, with frames of one gpu and of all four.

    The control run keeps no cores for it and holds no hosts.
    """
    gpus, count, plain = 4, 10, 10
    hosts = [world.host(f"gpu{number:03d}", 32, 128, gpus, gpus * 16) for number in range(count)]
    hosts += [world.host(f"cpu{number:03d}", 32, 128) for number in range(plain)]
    with given.database(hosts) as connection:
        script.set_values(connection, reservation_block_seconds=120)
        if given.control:
            script.set_values(connection, gpu_hold_enabled="false", reservations_enabled="false")
        script.submit(connection, "flood", script.layers(8, 30_000), priority=100)
        farm = Inline(connection, seconds=lambda one: farm.random.uniform(60, 240))
        for _ in range(4):
            farm.step(STEP_S)
        flooded = farm.fill()
        single = script.submit(
            connection, "single", [script.layer("render", 3000, 4, 4096, gpus=1, gpu_memory="8g")], priority=100
        )
        script.submit(connection, "quad", [script.layer("render", 6, 8, 8192, gpus=4, gpu_memory="32g")], priority=100)
        shares = []
        steps = given.size(60, 40)
        for step in range(steps):
            farm.tick()
            shares.append(sum(one.gpus for one in farm.running.values()) / (gpus * count))
            quads = farm.bookings[script.full_name("quad")]
            given.say(f"step {step + 1}: {shares[-1]:.0%} of the gpus, {quads} frames of four")
            farm.advance(STEP_S)
        connection.execute("select maestro.pause_job(%s)", [single])
        for _ in range(10):
            farm.step(STEP_S)
        after = farm.fill()
    late = shares[steps // 3 :]
    return {
        "fill_before": flooded, "gpus_used": sum(late) / len(late), "quads_started": quads / 6,
        "singles_started": farm.bookings[script.full_name("single")], "fill_after": after,
    }  # fmt: skip


SCENARIOS = (
    Scenario(
        "RESERVATIONS", "Frames of 64 and 128 cores run under a flood of small ones, which goes on.", reservations,
        (
            Bar("wide64_started", at_least=1), Bar("wide128_started", at_least=1), Bar("minutes", at_most=45),
            Bar("held_after", at_most=0), Bar("fill", at_least=0.75),
        ),
        ("bookings", "most_held"), ("wide64_started", "wide128_started"), quick=True,
    ),
    Scenario(
        "BACKFILL", "Short frames borrow held hosts while these wait for memory, and give them back in time.", backfill,
        (Bar("backfilled", at_least=50), Bar("delayed", at_most=0), Bar("held_cores_used", at_least=0.46)),
        ("wide_started", "held_host_steps"), ("backfilled", "held_cores_used"),
    ),
    Scenario(
        "GPU_STRAND", "Gpus are not buried by work without gpus, nor those who need four by those who need one.",
        gpu_strand,
        (
            Bar("gpus_used", at_least=0.85), Bar("quads_started", at_least=1), Bar("fill_before", at_least=0.99),
            Bar("fill_after", at_least=0.99),
        ),
        ("singles_started",), ("gpus_used", "quads_started"),
    ),
)  # fmt: skip

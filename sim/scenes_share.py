"""Scenarios about who gets how much of the farm, and in which order: priorities, shows, folders, depends."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from sim import script, world
from sim.inline import Booked, End, Inline
from sim.verify import Bar, Numbers, Scenario, World


def priority(given: World) -> Numbers:
    """Ten jobs that differ in nothing but priority, ten times as much of each as the farm holds."""
    wanted = 20_000
    classes = [10 * step for step in range(1, 11)]
    with given.database(world.uniform(50, 40)) as connection:
        for rank in classes:
            script.submit(
                connection, f"class{rank:03d}", [script.layer("render", 5000)],
                priority=50 if given.control else rank,
            )  # fmt: skip
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 120))
        while sum(farm.bookings.values()) < wanted:
            farm.step(30)
            given.say(f"{sum(farm.bookings.values()):,} of {wanted:,} bookings")
        booked = [farm.bookings[script.full_name(f"class{rank:03d}")] for rank in classes]
    total, weight = sum(booked), sum(classes)
    errors = [abs(got / total / (rank / weight) - 1) for got, rank in zip(booked, classes, strict=True)]
    inversions = sum(low >= high for low, high in pairwise(booked))
    return {
        "bookings": total, "worst_error": max(errors), "inversions": inversions,
        "share_lowest": booked[0] / total, "share_highest": booked[-1] / total,
    }  # fmt: skip


def priority_starving(given: World) -> Numbers:
    """One job of priority 1 under an endless flood of priority 100."""
    wanted, floods = 20_000, 3
    with given.database(world.uniform(50, 20)) as connection:
        for number in range(floods):
            script.submit(connection, f"flood{number}", [script.layer("render", 9000)], priority=100)
        script.submit(connection, "poor", [script.layer("render", 500)], priority=1, paused=given.control)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 120))
        first_s = 0.0
        while sum(farm.bookings.values()) < wanted:
            if farm.step(30) and not first_s and farm.bookings[script.full_name("poor")]:
                first_s = farm.now
            given.say(f"{sum(farm.bookings.values()):,} of {wanted:,} bookings")
        poor, total = farm.bookings[script.full_name("poor")], sum(farm.bookings.values())
    due = total / (floods * 100 + 1)
    return {"bookings": total, "poor_booked": poor, "share_of_due": poor / due, "first_after_s": first_s}


def depends(given: World) -> Numbers:
    """Trees: a frame by frame chain, a layer that waits for a layer, a job that waits for a job."""
    trees, frames = given.size(30, 6), 20
    bound = not given.control
    started: dict[tuple[str, str, int], float] = {}
    ended: dict[tuple[str, str, int], float] = {}
    with given.database(world.uniform(32, 8)) as connection:
        for tree in range(trees):
            first, second = f"tree{tree:03d}a", f"tree{tree:03d}b"
            render = [{"type": "FRAME_BY_FRAME", "deplayer": "render", "onlayer": "sims"},
                      {"type": "LAYER_ON_LAYER", "deplayer": "comp", "onlayer": "render"}]  # fmt: skip
            script.submit(
                connection, first,
                [script.layer("sims", frames), script.layer("render", frames), script.layer("comp", 1)],
                depends=render if bound else None,
            )  # fmt: skip
            script.submit(
                connection, second, [script.layer("final", 2)],
                depends=[{"type": "JOB_ON_JOB", "onjob": first}] if bound else None,
            )  # fmt: skip
        held = script.states(connection)["DEPEND"]
        total = trees * (2 * frames + 3)

        def ending(booked: Booked) -> End:
            ended[booked.job, booked.layer, booked.number] = farm.now
            return End()

        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(10, 100), ending=ending)
        for _ in range(400):
            for booked in farm.step(15):
                started[booked.job, booked.layer, booked.number] = farm.now - 15
            if farm.ended >= total:
                break
            given.say(f"{farm.ended:,} of {total:,} frames done")
        farm.tick()
        done = script.states(connection)["SUCCEEDED"]
        finished = script.one(connection, "select count(*) from public.job where str_state = 'FINISHED'")
    early = 0
    for tree in range(trees):
        first, second = script.full_name(f"tree{tree:03d}a"), script.full_name(f"tree{tree:03d}b")

        def later(on: list[tuple[str, str, int]], than: tuple[str, str, int]) -> bool:
            return any(ended.get(one, 1e9) > started.get(than, 1e9) for one in on)

        renders = [(first, "render", n) for n in range(1, frames + 1)]
        early += sum(later([(first, "sims", n)], (first, "render", n)) for n in range(1, frames + 1))
        early += later(renders, (first, "comp", 1))
        whole = [key for key in ended if key[0] == first]
        early += sum(later(whole, (second, "final", n)) for n in (1, 2))
    return {
        "frames": total, "done": done / total, "started_early": early, "held_at_first": held if bound else 1,
        "jobs_unfinished": 2 * trees - finished,
    }  # fmt: skip


def fair_share(given: World) -> Numbers:
    """Three shows with sizes of 1 to 2 to 3, of which the first may not use what its share comes to.

    What is left over is shared by size as well. All of them have one job of many; the control run shares nothing.
    """
    cores = 1000
    sizes = {"small": (100, 130), "middle": (200, 1000), "large": (300, 1000)}  # cores: size, burst
    jobs = {"small": 6, "middle": 3, "large": 1}  # so that shares by job would be the wrong way round
    with given.database(world.uniform(50, cores // 50)) as connection:
        if given.control:
            script.set_values(connection, fair_share="false")
        for show, (size, burst) in sizes.items():
            script.make_show(connection, show, size, burst)
            for number in range(jobs[show]):
                script.submit(connection, f"job{number}", [script.layer("render", 6000 // jobs[show])], show=show)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 120))
        used: dict[str, list[float]] = {show: [] for show in sizes}
        fills = []
        for step in range(given.size(40, 16)):
            farm.tick()
            running = Counter[str]()
            for one in farm.running.values():
                running[one.job.partition("-")[0]] += one.cores
            for show, counts in used.items():
                counts.append(running[show] / 100)
            fills.append(farm.fill())
            given.say(f"step {step + 1}: " + ", ".join(f"{show} {used[show][-1]:.0f}" for show in sizes))
            farm.advance(30)
    late = len(fills) // 4
    due = {"small": 130.0, "middle": 348.0, "large": 522.0}  # of 1,000 cores, as sizes and bursts have it
    means = {show: sum(counts[late:]) / len(counts[late:]) for show, counts in used.items()}
    return {
        "bookings": sum(farm.bookings.values()), "fill": min(fills[late:]),
        "worst_error": max(abs(means[show] / due[show] - 1) for show in sizes),
        "over_burst": max(max(counts) - sizes[show][1] for show, counts in used.items()),
        **{f"cores_{show}": mean for show, mean in means.items()},
    }  # fmt: skip


def folder(given: World) -> Numbers:
    """A folder's cap under a backlog that would fill the farm; another show takes what the cap leaves."""
    cap, cores = 200, 1000
    with given.database(world.uniform(50, cores // 50)) as connection:
        script.make_show(connection, "other", cores * 10, cores * 10)
        if not given.control:
            connection.execute(
                "update folder_resource as r set int_max_cores = maestro.core_points(%s) from folder as f, show as s"
                " where f.pk_folder = r.pk_folder and s.pk_show = f.pk_show and s.str_name = %s",
                [cap, script.SHOW],
            )
        script.submit(connection, "capped", [script.layer("render", 5000, cores=2)])
        script.submit(connection, "others", script.layers(8, 20_000), show="other")
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 240))
        used, fills = [], []
        for step in range(given.size(40, 15)):
            farm.step(30)
            capped = sum(one.cores for one in farm.running.values() if one.job == script.full_name("capped")) // 100
            used.append(capped)
            # What runs after a step is what was booked less what has ended: the tick's own view is full.
            fills.append(farm.fill())
            given.say(f"step {step + 1}: {capped} of {cap} cores used")
        peak = script.one(connection, "select max(int_cores) / 100.0 from public.folder_resource")
        booked = farm.bookings[script.full_name("capped")]
    return {
        "booked": booked, "most_used": max(used), "over_cap": max(max(used) - cap, 0),
        "cap_used": sum(used) / len(used) / cap, "fill": min(fills), "counter_cores": float(peak),
    }  # fmt: skip


SCENARIOS = (
    Scenario(
        "PRIORITY", "Ten priorities share the farm in order, and in proportion.", priority,
        (Bar("inversions", at_most=0), Bar("worst_error", at_most=0.25)), ("bookings",), ("inversions", "worst_error"),
    ),
    Scenario(
        "PRIORITY_STARVING", "The lowest priority gets its share under an endless flood.", priority_starving,
        (Bar("share_of_due", at_least=0.5),), ("bookings",), ("share_of_due",),
    ),
    Scenario(
        "FAIR_SHARE", "Shows share the farm by the size of their subscriptions, and none gets more than its burst.",
        fair_share, (Bar("worst_error", at_most=0.05), Bar("over_burst", at_most=0), Bar("fill", at_least=0.99)),
        ("bookings",), ("worst_error",),
    ),
    Scenario(
        "FOLDER", "A folder's cap holds and is used; the rest of the farm is not held back.", folder,
        (Bar("over_cap", at_most=0), Bar("cap_used", at_least=0.7), Bar("fill", at_least=0.99)), ("booked",),
        ("over_cap",), quick=True,
    ),
    Scenario(
        "DEPENDS", "Nothing starts before what it depends on has ended, and all of it ends.", depends,
        (Bar("started_early", at_most=0), Bar("done", at_least=1), Bar("jobs_unfinished", at_most=0)),
        ("frames", "held_at_first"), ("started_early",), quick=True,
    ),
)  # fmt: skip

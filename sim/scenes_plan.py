"""Scenarios about what ticks decide. They need no processes: virtual time (sim/inline.py), or the benchmark's runs."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from sim import bench, script, world
from sim.inline import Booked, End, Inline
from sim.verify import Bar, Numbers, Scenario, World


def _uniform(cores: int, count: int, memory_gib: float = 0.0) -> list[world.Host]:
    """Equal hosts, with 4 GiB a core if nothing else is said."""
    return [world.host(f"host{number:04d}", cores, memory_gib or cores * 4) for number in range(1, count + 1)]


def cold_fill(given: World) -> Numbers:
    figures = bench.cold_fill(given.lab, 0.1 if given.quick else 1.0, 1, given.say, lambda: None)
    given.faults["accounting_faults"] = figures["accounting_faults"]
    return {"seconds": figures["median_s"], "fill": figures["fill"], "bookings": figures["bookings"]}


def steady(given: World) -> Numbers:
    scale = 0.1 if given.quick else 1.0
    figures = bench.steady(given.lab, scale, 5 if given.quick else 10, bench.ENDED_A_ROUND, given.say, lambda: None)
    given.faults["accounting_faults"] = figures["accounting_faults"]
    return {
        "median_ms": figures["median_ms"], "booked": figures["booked"], "fill": figures["fill"],
        "waiting": figures["waiting"],
    }  # fmt: skip


def priority(given: World) -> Numbers:
    """Ten jobs that differ in nothing but priority, ten times as much of each as the farm holds."""
    wanted = 20_000
    classes = [10 * step for step in range(1, 11)]
    with given.database(_uniform(50, 40)) as connection:
        for rank in classes:
            script.submit(
                connection, f"class{rank:03d}", [script.layer("render", 5000)],
                priority=50 if given.control else rank,
            )  # fmt: skip
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 120))
        while sum(farm.bookings.values()) < wanted:
            farm.step(30)
            given.say(f"{sum(farm.bookings.values()):,} of {wanted:,} bookings")
        booked = [farm.bookings[f"demo-sim-sim_class{rank:03d}"] for rank in classes]
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
    with given.database(_uniform(50, 20)) as connection:
        for number in range(floods):
            script.submit(connection, f"flood{number}", [script.layer("render", 9000)], priority=100)
        script.submit(connection, "poor", [script.layer("render", 500)], priority=1, paused=given.control)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 120))
        first_s = 0.0
        while sum(farm.bookings.values()) < wanted:
            if farm.step(30) and not first_s and farm.bookings["demo-sim-sim_poor"]:
                first_s = farm.now
            given.say(f"{sum(farm.bookings.values()):,} of {wanted:,} bookings")
        poor, total = farm.bookings["demo-sim-sim_poor"], sum(farm.bookings.values())
    due = total / (floods * 100 + 1)
    return {"bookings": total, "poor_booked": poor, "share_of_due": poor / due, "first_after_s": first_s}


def depends(given: World) -> Numbers:
    """Trees: a frame by frame chain, a layer that waits for a layer, a job that waits for a job."""
    trees, frames = given.size(30, 6), 20
    bound = not given.control
    started: dict[tuple[str, str, int], float] = {}
    ended: dict[tuple[str, str, int], float] = {}
    with given.database(_uniform(32, 8)) as connection:
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
        first, second = f"demo-sim-sim_tree{tree:03d}a", f"demo-sim-sim_tree{tree:03d}b"

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


def folder(given: World) -> Numbers:
    """A folder's cap under a backlog that would fill the farm; another show takes what the cap leaves."""
    cap, cores = 200, 1000
    with given.database(_uniform(50, cores // 50)) as connection:
        script.make_show(connection, "other", cores * 10, cores * 10)
        if not given.control:
            connection.execute(
                "update folder_resource as r set int_max_cores = maestro.core_points(%s) from folder as f, show as s"
                " where f.pk_folder = r.pk_folder and s.pk_show = f.pk_show and s.str_name = %s",
                [cap, script.SHOW],
            )
        script.submit(connection, "capped", [script.layer("render", 5000, cores=2)])
        script.submit(connection, "others", [script.layer("render", 20_000)], show="other")
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 240))
        used, fills = [], []
        for step in range(given.size(40, 15)):
            farm.step(30)
            capped = sum(one.cores for one in farm.running.values() if one.job == "demo-sim-sim_capped") // 100
            used.append(capped)
            # What runs after a step is what was booked less what has ended: the tick's own view is full.
            fills.append(1 - farm.answers[-1]["idle_cores"] / farm.answers[-1]["cores"])
            given.say(f"step {step + 1}: {capped} of {cap} cores used")
        peak = script.one(connection, "select max(int_cores) / 100.0 from public.folder_resource")
        booked = farm.bookings["demo-sim-sim_capped"]
    return {
        "booked": booked, "most_used": max(used), "over_cap": max(max(used) - cap, 0),
        "cap_used": sum(used) / len(used) / cap, "fill": min(fills), "counter_cores": float(peak),
    }  # fmt: skip


def limit(given: World) -> Numbers:
    """A limit of 50 running frames, with work for many more."""
    most = 50
    with given.database(_uniform(50, 10)) as connection:
        script.make_limit(connection, "seats", most)
        bound: dict[str, Any] = {} if given.control else {"limits": ["seats"]}
        script.submit(connection, "limited", [script.layer("render", 5000, **bound)], priority=100)
        script.submit(connection, "free", [script.layer("render", 10_000)], priority=50)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 240))
        used = []
        for step in range(given.size(40, 15)):
            farm.tick()
            used.append(sum(one.job == "demo-sim-sim_limited" for one in farm.running.values()))
            farm.advance(30)
            given.say(f"step {step + 1}: {used[-1]} of {most} seats")
        # Two ticks with nothing ending between them: the second books nothing, and says why.
        farm.tick()
        farm.tick()
        reasons = script.one(
            connection,
            "select count(*) from maestro.waitlist as w join public.job as j using (pk_job)"
            " where j.str_name = 'demo-sim-sim_limited' and w.reasons::text ilike '%%limit%%'",
        )
        booked = farm.bookings["demo-sim-sim_limited"]
    return {
        "booked": booked, "most_used": max(used), "over_limit": max(max(used) - most, 0),
        "mean_used": sum(used) / len(used) / most, "named_in_waitlist": reasons,
    }  # fmt: skip


def pin(given: World) -> Numbers:
    """Layers tagged with a host's name run there and only there; a name that nobody bears is shown as such."""
    pinned = ("host0003", "host0007", "host0012")
    frames = 120
    with given.database(_uniform(16, 20)) as connection:
        script.submit(connection, "flood", [script.layer("render", 3000)], priority=100)
        for name in pinned:
            tags = "general" if given.control else name
            script.submit(connection, f"on_{name}", [script.layer("render", frames, tags=tags)], priority=50)
        script.submit(connection, "nowhere", [script.layer("render", 10, tags="nosuchhost")])
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(30, 60))
        booked: Counter[str] = Counter()
        misplaced = 0
        for _ in range(given.size(400, 200)):
            for one in farm.step(30):
                if one.job.startswith("demo-sim-sim_on_"):
                    name = one.job.removeprefix("demo-sim-sim_on_")
                    booked[name] += 1
                    misplaced += one.host != name
                misplaced += one.job == "demo-sim-sim_nowhere"
            if all(booked[name] >= frames for name in pinned):
                break
            given.say(f"{sum(booked.values())} of {frames * len(pinned)} pinned frames booked")
        no_host = farm.answers[-1]["waiting"]["no_host"]
    return {
        "pinned_booked": sum(booked.values()), "share_booked": sum(booked.values()) / (frames * len(pinned)),
        "misplaced": misplaced, "waiting_for_no_host": no_host,
    }  # fmt: skip


def tags_gpu(given: World) -> Numbers:
    """Sizes of hosts as tags, and GPU layers on GPU hosts; work without GPUs fills the rest to the last core."""
    scale = given.size(4, 1)
    hosts, kind_of = [], {}
    for kind, count, cores, gpus in (
        ("large", 6, 64, 0), ("medium", 10, 32, 0), ("small", 30, 16, 0), ("graphics", 8, 32, 4),
    ):  # fmt: skip
        for number in range(count * scale):
            made = world.host(f"{kind}{number:04d}", cores, cores * 4, gpus, gpus * 16)
            kind_of[made["name"]] = kind
            hosts.append(made)
    allowed = {
        "onlarge": {"large"}, "onmedium": {"medium"}, "onsmall": {"small", "medium"}, "withgpu": {"graphics"},
    }  # fmt: skip
    with given.database(hosts) as connection:
        for kind in ("large", "medium", "small", "graphics"):
            world.tag(connection, [name for name, of in kind_of.items() if of == kind], [kind])
        plain = given.control
        layers = [
            script.layer("onlarge", 2000 * scale, 4, tags="general" if plain else "large"),
            script.layer("onmedium", 2000 * scale, 2, tags="general" if plain else "medium"),
            script.layer("onsmall", 3000 * scale, 1, tags="general" if plain else "small | medium"),
            script.layer("withgpu", 200 * scale, 2, gpus=1, gpu_memory="8g"),
            script.layer("anywhere", 2000 * scale, 1),
        ]
        script.submit(connection, "mixed", layers)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 300))
        misplaced, by_layer, fills = 0, Counter[str](), []
        for step in range(given.size(12, 6)):
            for one in farm.tick():
                by_layer[one.layer] += 1
                misplaced += kind_of[one.host] not in allowed.get(one.layer, {kind_of[one.host]})
            fills.append(1 - farm.answers[-1]["idle_cores"] / farm.answers[-1]["cores"])
            farm.advance(60)
            given.say(f"step {step + 1}: {sum(by_layer.values()):,} bookings")
    return {
        "booked": sum(by_layer.values()), "gpu_booked": by_layer["withgpu"], "misplaced": misplaced,
        "large_booked": by_layer["onlarge"], "small_booked": by_layer["onsmall"], "fill": min(fills[1:]),
    }  # fmt: skip


def tagmax(given: World) -> Numbers:
    """As many kinds of hosts as hosts: each has a tag of its own, and a layer that asks for it."""
    count = given.size(1000, 200)
    hosts = _uniform(16, count)
    with given.database(hosts) as connection:
        for made in hosts:
            world.tag(connection, [made["name"]], [f"own_{made['name']}"])
        layers = [
            script.layer(
                f"for_{made['name']}", 8, tags="general" if given.control else f"own_{made['name']}"
            )
            for made in hosts
        ]  # fmt: skip
        script.submit(connection, "special", layers[:500])
        script.submit(connection, "special2", layers[500:]) if layers[500:] else None
        script.submit(connection, "common", [script.layer("render", count * 16)])
        farm = Inline(connection, seconds=lambda booked: 600.0)
        booked = farm.tick()
        own = [one for one in booked if one.layer.startswith("for_")]
        misplaced = sum(one.layer.removeprefix("for_") != one.host for one in own)
        answer = farm.answers[-1]
        rounds = 0
        while len(own) < count * 8 and rounds < 8:
            farm.advance(600)
            own += [one for one in farm.tick() if one.layer.startswith("for_")]
            rounds += 1
    return {
        "groups": answer["groups"], "hosts": count, "booked": len(booked), "own_booked": len(own) / (count * 8),
        "misplaced": misplaced, "fill": 1 - answer["idle_cores"] / answer["cores"], "tick_ms": answer["ms"]["total"],
    }  # fmt: skip


def memory_drift(given: World) -> Numbers:
    """Odd sizes, growing frames, repeated ends: after all of it every host has its memory back, to the KiB."""
    frames = given.size(10_000, 2_000)
    hosts = _uniform(32, 20, 100.3)
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
            grown += _report_growth(connection, farm, hosts)
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
        drift = script.one(connection, "select sum(abs(int_mem - int_mem_idle)) from public.host")
        cores = script.one(connection, "select sum(abs(int_cores - int_cores_idle)) from public.host")
        done = script.states(connection)["SUCCEEDED"]
    return {
        "frames_ended": farm.ended, "done": done / frames, "grown": grown, "drift_kib": float(drift),
        "drift_core_points": float(cores), "uneven_hosts": uneven,
    }  # fmt: skip


def _report_growth(connection: object, farm: Inline, hosts: list[world.Host]) -> int:
    """Host reports in which some frames use more than they reserved; returns how many procs grew."""
    by_host: dict[str, list[Booked]] = {}
    for one in farm.running.values():
        by_host.setdefault(one.host, []).append(one)
    before = script.one(farm.connection, "select coalesce(sum(int_mem_reserved), 0) from public.proc")
    reports = [
        {
            "host": {
                "name": made["name"], "num_procs": 1, "cores_per_proc": made["cores"], "total_mem": made["mem"],
                "free_mem": made["mem"] // 2, "tags": made["tags"], "attributes": {"SP_OS": "linux"}, "boot_time": 1,
            },
            "frames": [
                {
                    "resource_id": one.pk_proc, "frame_id": one.pk_frame, "job_name": one.job,
                    "rss": one.mem + 12_288 if farm.random.random() < 0.2 else one.mem // 3, "max_rss": one.mem // 3,
                }
                for one in by_host.get(made["name"], [])
            ],
        }
        for made in hosts
    ]  # fmt: skip
    farm.connection.execute("select maestro.report_status(%s::jsonb)", [json.dumps(reports)])
    after = script.one(farm.connection, "select coalesce(sum(int_mem_reserved), 0) from public.proc")
    return int(after > before)


SCENARIOS = (
    Scenario(
        "COLD_FILL", "One tick fills an idle farm.", cold_fill,
        # Twice the design's bar: other work on the machine must not decide; `maestro bench` is where speed is judged.
        (Bar("fill", at_least=0.995), Bar("seconds", at_most=4.0)), ("bookings",),
    ),
    Scenario(
        "STEADY", "A tick on a full farm with 200,000 waiting frames books what has ended.", steady,
        (Bar("median_ms", at_most=300), Bar("fill", at_least=0.99)), ("booked", "waiting"),
    ),
    Scenario(
        "PRIORITY", "Ten priorities share the farm in order, and in proportion.", priority,
        (Bar("inversions", at_most=0), Bar("worst_error", at_most=0.25)), ("bookings",), ("inversions", "worst_error"),
    ),
    Scenario(
        "PRIORITY_STARVING", "The lowest priority gets its share under an endless flood.", priority_starving,
        (Bar("share_of_due", at_least=0.5),), ("bookings",), ("share_of_due",),
    ),
    Scenario(
        "DEPENDS", "Nothing starts before what it depends on has ended, and all of it ends.", depends,
        (Bar("started_early", at_most=0), Bar("done", at_least=1), Bar("jobs_unfinished", at_most=0)),
        ("frames", "held_at_first"), ("started_early",),
    ),
    Scenario(
        "FOLDER", "A folder's cap holds and is used; the rest of the farm is not held back.", folder,
        (Bar("over_cap", at_most=0), Bar("cap_used", at_least=0.7), Bar("fill", at_least=0.99)), ("booked",),
        ("over_cap",),
    ),
    Scenario(
        "LIMIT", "A limit holds, is used, and is named as the reason for waiting.", limit,
        (Bar("over_limit", at_most=0), Bar("mean_used", at_least=0.95), Bar("named_in_waitlist", at_least=1)),
        ("booked",), ("over_limit",),
    ),
    Scenario(
        "PIN", "Work pinned to a host runs there and only there; an unknown host is named.", pin,
        (Bar("misplaced", at_most=0), Bar("share_booked", at_least=1), Bar("waiting_for_no_host", at_least=10)),
        ("pinned_booked",), ("misplaced",),
    ),
    Scenario(
        "TAGS_GPU", "Tags and GPUs are kept to, and nothing that fits is left idle for them.", tags_gpu,
        (Bar("misplaced", at_most=0), Bar("fill", at_least=0.98)),
        ("booked", "gpu_booked", "large_booked", "small_booked"), ("misplaced",),
    ),
    Scenario(
        "TAGMAX", "A farm where every host is a kind of its own fills all the same.", tagmax,
        (
            Bar("misplaced", at_most=0), Bar("own_booked", at_least=1), Bar("fill", at_least=0.99),
            Bar("tick_ms", at_most=10_000),
        ),
        ("groups", "booked"), ("misplaced",),
    ),
    Scenario(
        "MEMORY_DRIFT", "After thousands of odd frames each host has its memory back, to the KiB.", memory_drift,
        (
            Bar("drift_kib", at_most=0), Bar("drift_core_points", at_most=0), Bar("uneven_hosts", at_most=0),
            Bar("done", at_least=1),
        ),
        ("frames_ended", "grown"),
    ),
)  # fmt: skip

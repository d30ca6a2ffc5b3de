"""Scenarios about limits: the farm's own, and licences whose pools are shared with people at their desks."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sim import script, world
from sim.inline import Booked, End, Inline
from sim.verify import Bar, Numbers, Scenario, World


def limit(given: World) -> Numbers:
    """A limit of 50 running frames, with work for many more."""
    most = 50
    with given.database(world.uniform(50, 10)) as connection:
        script.make_limit(connection, "seats", most)
        bound: dict[str, Any] = {} if given.control else {"limits": ["seats"]}
        script.submit(connection, "limited", [script.layer("render", 5000, **bound)], priority=100)
        script.submit(connection, "free", [script.layer("render", 10_000)], priority=50)
        farm = Inline(connection, seconds=lambda booked: farm.random.uniform(60, 240))
        used = []
        for step in range(given.size(40, 15)):
            farm.tick()
            used.append(sum(one.job == script.full_name("limited") for one in farm.running.values()))
            farm.advance(30)
            given.say(f"step {step + 1}: {used[-1]} of {most} seats")
        # Two ticks with nothing ending between them: the second books nothing, and says why.
        farm.tick()
        farm.tick()
        reasons = script.one(
            connection,
            "select count(*) from maestro.waitlist as w join public.job as j using (pk_job)"
            " where j.str_name = %s and w.reasons::text ilike '%%limit%%'", script.full_name("limited"),
        )
        booked = farm.bookings[script.full_name("limited")]
    return {
        "booked": booked, "most_used": max(used), "over_limit": max(max(used) - most, 0),
        "mean_used": sum(used) / len(used) / most, "named_in_waitlist": reasons,
    }  # fmt: skip


class Licences:
    """A licence server: a pool of tokens, or of seats for machines, that the farm shares with artists.

    Artists take what is free when they come. A frame of the farm that finds nothing free is denied.
    """

    def __init__(self, name: str, pool: int, jobs: set[str], per_host: bool = False) -> None:
        self.name = name
        self.pool = pool
        self.jobs = jobs  # whose frames need it
        self.per_host = per_host
        self.artists = 0
        self.denied: set[str] = set()  # pk_proc
        self.asked = 0  # tokens that frames wanted, the denied ones included
        self.used: list[float] = []  # shares of the pool, in time

    def holders(self, farm: Inline) -> Counter[str]:
        """Tokens in use by host of the farm; a seat is one, whatever runs on it."""
        held = Counter(
            one.host for one in farm.running.values() if one.job in self.jobs and one.pk_proc not in self.denied
        )
        return Counter(dict.fromkeys(held, 1)) if self.per_host else held

    def come_and_go(self, farm: Inline, wanted: int) -> None:
        """Artists would like to hold `wanted`: they take what is free, and give back what they do not need."""
        free = self.pool - self.holders(farm).total() - self.artists
        self.artists = min(wanted, self.artists + max(free, 0))

    def check_out(self, farm: Inline, booked: list[Booked]) -> None:
        """Frames start: each takes a token, or its machine a seat; those for which none is left are denied."""
        asking = [one for one in booked if one.job in self.jobs]
        self.asked += len(asking)
        self.denied.update(one.pk_proc for one in asking)
        held = self.holders(farm)
        for one in asking:
            if self.per_host and one.host in held:
                self.denied.discard(one.pk_proc)
            elif held.total() + self.artists < self.pool:
                held[one.host] += 1
                self.denied.discard(one.pk_proc)
        self.used.append((held.total() + self.artists) / self.pool)

    def report(self, farm: Inline, by_host: bool = True) -> None:
        """What a site's reporter tells; with `by_host` false the server knows the sum alone."""
        tokens = self.holders(farm) + Counter({f"desk{number:03d}": 1 for number in range(self.artists)})
        if not by_host:
            tokens = Counter({"everywhere": tokens.total()} if tokens else {})
        hosts = [{"host": name, "tokens": count} for name, count in tokens.items()]
        farm.connection.execute(
            "select maestro.report_limit_usage(%s::jsonb)", [json.dumps({"limit": self.name, "hosts": hosts})]
        )


DENIED = {"token": 111, "seat": 112}  # exit statuses of frames that found no licence
STEP_S = 30
# Reports come a step apart; what started before the last one is in it.
REPORTS: dict[str, object] = {"limit_settle_window_seconds": STEP_S - 5, "limit_min_report_interval_seconds": 0}


def _licensed(given: World, servers: list[Licences], by_host: bool) -> Numbers:
    """Steps of a farm whose licensed work would fill it, beside artists; numbers of the time after a start-up."""
    bound = not given.control
    steps = given.size(60, 24)
    late = steps // 3  # by then the farm is full, and the untold job is known
    before: list[tuple[int, int]] = []
    kind = {"token": 20, "seat": 2}  # artists at most

    def denied(one: Booked) -> Licences | None:
        return next((server for server in servers if one.pk_proc in server.denied), None)

    def ending(one: Booked) -> End:
        server = denied(one)
        return End(status=DENIED[server.name] if server else 0)

    def started(booked: list[Booked]) -> None:
        for server in servers:
            server.check_out(farm, booked)

    with given.database(world.uniform(16, 30)) as connection:
        script.set_values(connection, **REPORTS)
        for server in servers:
            status = DENIED[server.name] if bound else None
            script.make_limit(connection, server.name, server.pool, server.per_host, status)
            limits: dict[str, Any] = {"limits": [server.name]} if bound else {}
            script.submit(connection, server.name, [script.layer("render", 4000, **limits)], priority=200)
        # It does not say what it needs: its first denials teach it.
        script.submit(connection, "untold", [script.layer("render", 1000)])
        script.submit(connection, "others", [script.layer("render", 20_000)])
        farm = Inline(
            connection, seconds=lambda one: 1.0 if denied(one) else farm.random.uniform(60, 240), ending=ending,
            started=started,
        )  # fmt: skip
        shared, fills = [], []
        for step in range(steps):
            if step == late:
                before = [(server.asked, len(server.denied)) for server in servers]
            for server in servers:
                server.come_and_go(farm, farm.random.randint(0, kind[server.name]))
                server.report(farm, by_host)
                if step % 4 == 0:  # some come between the report and the tick
                    server.come_and_go(farm, farm.random.randint(0, kind[server.name]))
            farm.tick()
            fills.append(farm.fill())
            for server in servers:
                if server.per_host:
                    licensed = [one for one in farm.running.values() if one.job in server.jobs and not denied(one)]
                    shared.append(len(licensed) / max(server.holders(farm).total(), 1))
            given.say(f"step {step + 1}: " + ", ".join(f"{s.used[-1]:.0%} of the {s.name}s" for s in servers))
            farm.advance(STEP_S)
        numbers: Numbers = {
            "retries": script.one(connection, "select coalesce(sum(int_retries), 0)::int from public.frame"),
            "dead": script.states(connection)["DEAD"], "fill": min(fills[late:]),
            "learned": script.one(connection, "select count(*) from public.layer_limit where str_source = 'AUTO'"),
        }  # fmt: skip
        for server, (asked, refused) in zip(servers, before, strict=True):
            numbers |= {
                f"{server.name}s_used": sum(server.used[late:]) / len(server.used[late:]),
                f"{server.name}_asked": server.asked, f"{server.name}_denials": len(server.denied),
                f"{server.name}_denied_share": (len(server.denied) - refused) / max(server.asked - asked, 1),
            }  # fmt: skip
        if shared:
            numbers["frames_a_seat"] = sum(shared[late:]) / len(shared[late:])
    return numbers


def license(given: World) -> Numbers:
    """A pool of tokens and one of machines' seats. The control run tells the farm nothing of either."""
    return _licensed(
        given,
        [
            Licences("token", 60, {script.full_name("token"), script.full_name("untold")}),
            Licences("seat", 6, {script.full_name("seat")}, per_host=True),
        ],
        by_host=True,
    )  # fmt: skip


def license_no_hosts(given: World) -> Numbers:
    """A server that tells how many tokens are in use, and not where."""
    return _licensed(given, [Licences("token", 60, {script.full_name("token"), script.full_name("untold")})], False)


SCENARIOS = (
    Scenario(
        "LIMIT", "A limit holds, is used, and is named as the reason for waiting.", limit,
        (Bar("over_limit", at_most=0), Bar("mean_used", at_least=0.95), Bar("named_in_waitlist", at_least=1)),
        ("booked",), ("over_limit",), quick=True,
    ),
    Scenario(
        "LICENSE", "Pools shared with artists are used up and never overdrawn; a denied frame loses no retry.", license,
        (
            Bar("token_denied_share", at_most=0.3), Bar("tokens_used", at_least=0.85),
            Bar("seat_denied_share", at_most=0.3), Bar("seats_used", at_least=0.85),
            Bar("frames_a_seat", at_least=4), Bar("retries", at_most=0), Bar("dead", at_most=0),
            Bar("fill", at_least=0.95),
        ),
        ("token_asked", "seat_asked", "token_denials", "learned"),
        ("token_denied_share", "seat_denied_share", "retries"), quick=True,
    ),
    Scenario(
        "LICENSE_NO_HOSTS", "The same where the licence server knows only how many tokens are in use.",
        license_no_hosts,
        (
            Bar("token_denied_share", at_most=0.3), Bar("tokens_used", at_least=0.85), Bar("retries", at_most=0),
            Bar("dead", at_most=0), Bar("fill", at_least=0.95),
        ),
        ("token_asked", "token_denials", "learned"), ("token_denied_share", "retries"),
    ),
)  # fmt: skip

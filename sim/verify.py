"""The frame in which scenarios are judged: what a scenario is, and how its numbers become a verdict.

A scenario measures numbers. PASS needs all of: every bar holds; the numbers that prove that something happened
(`evidence`) are above 0; and, where the scenario has one, a control run, in which what is tested is switched off or
away, breaks at least one of the bars that it is to break. A bar that holds in the control as well tells nothing: the
verdict is INCONCLUSIVE, as it is when nothing was measured.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from db.connection import connect
from db.errors import MaestroError
from sim import script, world
from sim.lab import EMPTY, Lab, Say
from sim.processes import Stage, stage

DATABASE = "verify_run"
Numbers = dict[str, float]


class Verdict(enum.Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Bar:
    """What a number must keep to."""

    number: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, numbers: Numbers) -> bool | None:
        """None: the number was not measured."""
        value = numbers.get(self.number)
        if value is None:
            return None
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        parts = [f">= {self.at_least:g}"] if self.at_least is not None else []
        parts += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        return f"{self.number} {' and '.join(parts)}"


BOOKS = Bar("accounting_faults", at_most=0)  # of every scenario


@dataclass(frozen=True)
class Scenario:
    """`run` measures, given a world; `breaks` names the bars of which the control run must break one.

    `quick`: one of those that fit five minutes together, on small farms.
    """

    name: str
    about: str
    run: Callable[[World], Numbers]
    bars: tuple[Bar, ...]
    evidence: tuple[str, ...]
    breaks: tuple[str, ...] = ()
    quick: bool = False


@dataclass
class Result:
    verdict: Verdict
    numbers: Numbers
    note: str = ""
    seconds: float = 0.0
    control: Numbers = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value, "numbers": self.numbers, "note": self.note,
            "seconds": round(self.seconds, 1), "control": self.control,
        }  # fmt: skip


def judge(scenario: Scenario, numbers: Numbers, control: Numbers | None) -> Result:
    """The verdict over what was measured; `control` is None when the control run is not asked for."""
    for name in scenario.evidence:
        if not numbers.get(name):
            return Result(Verdict.INCONCLUSIVE, numbers, f"measured nothing: {name} is {numbers.get(name, 'missing')}")
    broken = []
    for bar in (*scenario.bars, BOOKS):
        held = bar.holds(numbers)
        if held is None:
            return Result(Verdict.INCONCLUSIVE, numbers, f"{bar.number} was not measured")
        if not held:
            broken.append(f"{bar.number} is {numbers[bar.number]:g}, the bar is {bar}")
    if broken:
        return Result(Verdict.FAIL, numbers, "; ".join(broken), control=control or {})
    if control is not None:
        telling = [bar for bar in scenario.bars if bar.number in scenario.breaks]
        if all(bar.holds(control) for bar in telling):
            return Result(
                Verdict.INCONCLUSIVE, numbers, "the control run keeps to the bars as well: they tell nothing",
                control=control,
            )  # fmt: skip
    return Result(Verdict.PASS, numbers, control=control or {})


def verify(scenario: Scenario, lab: Lab, seconds: float, quick: bool, say: Say) -> Result:
    """Run a scenario, and its control run if it has one. What breaks it is a FAIL, with the reason in its note."""
    began = time.monotonic()
    numbers: Numbers = {}
    try:
        numbers = _measure(scenario, World(lab, seconds, quick, False, say))
        control = None
        if scenario.breaks and all(bar.holds(numbers) for bar in scenario.bars):
            say("control run")
            control = _measure(scenario, World(lab, seconds, quick, True, say))
        result = judge(scenario, numbers, control)
    except (MaestroError, psycopg.Error) as error:
        result = Result(Verdict.FAIL, numbers, str(error).strip().splitlines()[0])
    result.seconds = time.monotonic() - began
    return result


def _measure(scenario: Scenario, made: World) -> Numbers:
    numbers = scenario.run(made)
    return {**{name: round(value, 4) for name, value in numbers.items()}, **made.faults}


class World:
    """What a scenario is given: a way to fresh databases and farms, and how long and large it may be."""

    def __init__(self, lab: Lab, seconds: float, quick: bool, control: bool, say: Say) -> None:
        self.lab = lab
        self.seconds = seconds
        self.quick = quick
        self.control = control  # what is tested is to be left away
        self.say = say
        self.faults: Numbers = {}
        self.dsn = ""  # of the database that was made last

    def size(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual

    @contextlib.contextmanager
    def database(self, hosts: Sequence[world.Host] = ()) -> Iterator[psycopg.Connection[Any]]:
        """A fresh database with these hosts; at the end its books are checked."""
        self.dsn = dsn = self.lab.clone(EMPTY, DATABASE)
        with connect(dsn) as connection:
            world.boot(connection, list(hosts))
            yield connection
        with connect(dsn) as connection:  # a scenario may have broken the first
            self.check(connection)

    def check(self, connection: psycopg.Connection[Any]) -> None:
        found = script.one(connection, "select count(*) from maestro.check_accounting()")
        self.faults["accounting_faults"] = self.faults.get("accounting_faults", 0) + found

    @contextlib.contextmanager
    def live(
        self, hosts: Sequence[world.Host], *, every_s: float = 0.25, settings: dict[str, object] | None = None,
        launcher: dict[str, object] | None = None, **behaviour: Any,
    ) -> Iterator[Live]:  # fmt: skip
        """A farm with processes: launcher, fake hosts, ticks; at the end the books are checked."""
        directory = Path(self.lab.directory / "live")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        with self.database(hosts) as connection:
            script.set_values(connection, log_root=directory / "logs", **(settings or {}))
            with stage(self.dsn, directory) as around:
                around.start_launcher(**(launcher or {}))
                around.start_farm(
                    world.save(list(hosts), directory / "hosts.json"), {"report_s": 2.0, **behaviour}
                )
                world.dial(connection, list(hosts), [around.farm.target])
                around.await_launchers(connection)
                around.start_ticks(every_s)
                yield Live(self, connection, around)
                around.stop_ticks()


@dataclass
class Live:
    """A living farm, as scenarios of failures use it."""

    world: World
    connection: psycopg.Connection[Any]
    stage: Stage

    def one(self, query: str, *values: Any) -> Any:
        return script.one(self.connection, query, *values)

    def until(self, what: str, condition: Callable[[], object], seconds: float = 60.0) -> float:
        """Wait until the condition holds; returns the seconds that it took. Raises MaestroError, naming `what`."""
        took = self.waited(condition, seconds)
        if took > seconds:
            raise MaestroError(f"not within {seconds:.0f} s: {what}")
        return took

    def waited(self, condition: Callable[[], object], seconds: float) -> float:
        """Wait until the condition holds, but not much longer than `seconds`; returns the seconds that went by."""
        began = time.monotonic()
        while not condition() and time.monotonic() - began <= seconds:
            time.sleep(0.05)
        return time.monotonic() - began

    def done(self) -> int:
        return script.states(self.connection)["SUCCEEDED"]

    def finish(self, total: int) -> float:
        """Wait until `total` frames have succeeded and all is quiet; returns the seconds until then."""
        last = [0]

        def all_done() -> bool:
            last[0] = self.done()
            self.world.say(f"{last[0]:,} of {total:,} frames done")
            return last[0] >= total

        try:
            took = self.until(f"{total} frames done", all_done, 120.0 + 6 * self.world.seconds)
        except MaestroError as error:
            raise MaestroError(f"{error}, but {last[0]}; {script.states(self.connection)}") from None
        self.until("the last bookings released", lambda: not self.one("select count(*) from public.proc"))
        return took

    def reconnect(self) -> None:
        """A connection of one's own after the database was away."""
        dsn = self.stage.dsn
        with contextlib.suppress(psycopg.Error):
            self.connection.close()
        self.connection = connect(dsn)

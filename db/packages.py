"""The operating system's packages that Maestro needs: finds what is missing and, on Debian and Ubuntu, installs it.

Quick and silent when nothing is missing: it looks for files, not into the package database.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from db.errors import MaestroError

PREFERRED_MAJOR = 15
OLDEST_MAJOR = 14
SERVERS = Path("/usr/lib/postgresql")
NO_MAIN_CLUSTER = Path("/etc/postgresql-common/createcluster.d/maestro-install.conf")


@dataclass(frozen=True)
class Need:
    """Something that must be there: for people, and the Debian package that brings it ({major} is filled in)."""

    what: str
    package: str


SERVER = Need("the PostgreSQL server", "postgresql-{major}")
EXTENSIONS = {
    "plpython3u": Need("PL/Python", "postgresql-plpython3-{major}"),
    "pgtap": Need("pgTAP", "postgresql-{major}-pgtap"),
    "pg_cron": Need("pg_cron", "postgresql-{major}-cron"),
}
PROGRAMS = {
    "time": Need("GNU time", "time"),
    "pg_prove": Need("pg_prove", "libtap-parser-sourcehandler-pgtap-perl"),
}


def installed_major() -> int | None:
    """Major version of the newest PostgreSQL server that Debian's layout holds, or None."""
    majors = [
        int(path.parent.parent.name)
        for path in SERVERS.glob("*/bin/initdb")
        if path.parent.parent.name.isdigit() and int(path.parent.parent.name) >= OLDEST_MAJOR
    ]
    return max(majors, default=None)


def missing(programs: tuple[str, ...] = ()) -> list[Need]:
    """What is not there of the server, its extensions and `programs` (names of PROGRAMS)."""
    major = installed_major()
    needs = []
    if major is not None:
        extensions = Path(f"/usr/share/postgresql/{major}/extension")
        needs += [need for name, need in EXTENSIONS.items() if not (extensions / f"{name}.control").exists()]
    elif shutil.which("initdb") is None:
        needs += [SERVER, *EXTENSIONS.values()]
    # With a server outside Debian's layout the extensions show when they are created.
    needs += [PROGRAMS[name] for name in programs if _absent(name)]
    return needs


def ensure(programs: tuple[str, ...] = ()) -> None:
    """Install what is missing. Raises MaestroError that lists it where that is impossible or fails."""
    needs = missing(programs)
    if not needs:
        return
    prefix = _administrator()
    if shutil.which("apt-get") is None or prefix is None:
        names = ", ".join(need.what for need in needs)
        advice = " ".join(need.package.format(major=installed_major() or PREFERRED_MAJOR) for need in needs)
        raise MaestroError(f"missing: {names}; install what your system calls {advice}, or start this as root")
    print(f"maestro: installing {', '.join(need.what for need in needs)} …", file=sys.stderr)
    _run([*prefix, "apt-get", "update", "-qq"])
    major = installed_major() or best_major(_candidates())
    if major is None:
        raise MaestroError("the distribution has no PostgreSQL 14 or later with PL/Python, pgTAP and pg_cron")
    fresh = installed_major() is None
    with _no_main_cluster(prefix) if fresh else contextlib.nullcontext():
        _run(
            [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq",
             "--no-install-recommends", *(need.package.format(major=major) for need in needs)]
        )  # fmt: skip
    still = missing(programs)
    if still:
        raise MaestroError(f"still missing after the installation: {', '.join(need.what for need in still)}")


def best_major(available: set[str]) -> int | None:
    """The preferred major if `available` (package names) has all of it, else the newest that it has whole."""
    majors = {int(found[1]) for name in available if (found := re.fullmatch(r"postgresql-(\d+)", name))}
    whole = [
        major
        for major in majors
        if major >= OLDEST_MAJOR
        and all(need.package.format(major=major) in available for need in [SERVER, *EXTENSIONS.values()])
    ]
    return PREFERRED_MAJOR if PREFERRED_MAJOR in whole else max(whole, default=None)


def _candidates() -> set[str]:
    """Names of PostgreSQL's packages that apt could install now."""
    names = subprocess.run(["apt-cache", "pkgnames", "postgresql-"], capture_output=True, text=True, check=True)
    wanted = [name for name in names.stdout.split() if re.search(r"-\d+(-cron|-pgtap)?$", name)]
    policy = subprocess.run(
        ["apt-cache", "policy", *wanted], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    found = re.findall(r"^(\S+):\n(?:  Installed: .*\n)  Candidate: (.+)$", policy.stdout, re.MULTILINE)
    return {name for name, candidate in found if candidate != "(none)"}


def _absent(program: str) -> bool:
    # RQD calls it by this path; a shell's own `time` is no help.
    return not Path("/usr/bin/time").exists() if program == "time" else shutil.which(program) is None


def _administrator() -> list[str] | None:
    """What to put before a command that needs root: nothing, sudo, or None when neither is there."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if sys.stdin.isatty():
        return ["sudo"]
    quiet = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return ["sudo", "-n"] if quiet.returncode == 0 else None


@contextlib.contextmanager
def _no_main_cluster(prefix: list[str]) -> Iterator[None]:
    """Keep Debian from making and starting a cluster of its own on port 5432 during a first installation."""
    _run([*prefix, "mkdir", "-p", str(NO_MAIN_CLUSTER.parent)])
    _run([*prefix, "tee", str(NO_MAIN_CLUSTER)], feed="create_main_cluster = false\n")
    try:
        yield
    finally:
        _run([*prefix, "rm", "-f", str(NO_MAIN_CLUSTER)])


def _run(command: list[str], feed: str = "") -> None:
    done = subprocess.run(
        command, input=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise MaestroError(f"`{' '.join(command)}` failed:\n{done.stdout.strip()}")

"""Packs the pure Python packages into one database function, so that nothing is copied to the server's disk.

`maestro.load_python()` carries the sources and their hash. A PL/Python function calls it first and then imports as
usual; a session that holds modules of another hash drops them, so an upgrade reaches open sessions at their next call.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parent / "functions"
PACKAGES = ("planner", "phases", "jobspec")

TEMPLATE = """\
create or replace function maestro.load_python() returns text
language plpython3u
set search_path = pg_catalog, pg_temp
as $maestro_python$
VERSION = {version!r}
if GD.get("maestro_python") != VERSION:
    import importlib.abc, importlib.util, sys

    SOURCES = {sources!r}

    class Embedded(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        version = VERSION

        def find_spec(self, name, path=None, target=None):
            if name in SOURCES:
                return importlib.util.spec_from_loader(name, self, is_package="." not in name)

        def is_package(self, name):
            return "." not in name

        def get_source(self, name):
            return SOURCES[name]

        def exec_module(self, module):
            name = module.__name__
            exec(compile(SOURCES[name], "<maestro " + name + ">", "exec"), module.__dict__)

    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "Embedded"]
    sys.meta_path.insert(0, Embedded())
    for name in list(sys.modules):
        if name.split(".")[0] in {packages!r}:
            del sys.modules[name]
    GD["maestro_python"] = VERSION
return VERSION
$maestro_python$;
comment on function maestro.load_python() is
    'Makes the packages planner, phases and jobspec importable in this session, as installed last; returns their hash.';
"""


def sources() -> dict[str, str]:
    """Module name -> source text of every module of the embedded packages."""
    found = {}
    for package in PACKAGES:
        for path in sorted((FUNCTIONS / package).glob("*.py")):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = path.read_text()
    return found


def statement() -> str:
    """The SQL that (re)creates maestro.load_python()."""
    texts = sources()
    version = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
    return TEMPLATE.format(version=version, sources=texts, packages=PACKAGES)

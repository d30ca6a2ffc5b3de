"""Packs the pure Python packages into database functions, so that nothing is copied to the server's disk.

`maestro.python_sources()` carries the sources, `maestro.load_python()` the same compiled by the server's own Python:
each new session would spend a tenth of a second on compiling them. A PL/Python function calls load_python first and
then imports as usual; a session that holds modules of another hash drops them, so an upgrade reaches open sessions at
their next call.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parent / "functions"
PACKAGES = ("planner", "phases", "jobspec")

SOURCES = """\
create or replace function maestro.python_sources() returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
return $maestro_sources${sources}$maestro_sources$::jsonb;
comment on function maestro.python_sources() is
    'The sources of the packages planner, phases and jobspec as installed last: module name -> text.';
"""

# Runs in the server: its Python makes the code that its Python will load.
COMPILE = """\
do language plpython3u $maestro_compile$
import base64, json, marshal, sys, zlib

sources = json.loads(plpy.execute("select maestro.python_sources() as sources")[0]["sources"])
code = {{name: compile(text, "<maestro " + name + ">", "exec") for name, text in sources.items()}}
body = {loader!r}.format(
    version={version!r}, packages={packages!r}, python=sys.implementation.cache_tag,
    code=base64.b64encode(zlib.compress(marshal.dumps(code), 9)).decode(),
)
plpy.execute(
    "create or replace function maestro.load_python() returns text language plpython3u"
    " set search_path = pg_catalog, pg_temp as $maestro_python$" + body + "$maestro_python$"
)
$maestro_compile$;
comment on function maestro.load_python() is
    'Makes the packages planner, phases and jobspec importable in this session, as installed last; returns their hash.';
"""

LOADER = """
if GD.get("maestro_python") != {version!r}:
    import binascii, importlib.machinery, marshal, sys, zlib

    if sys.implementation.cache_tag == {python!r}:
        code = marshal.loads(zlib.decompress(binascii.a2b_base64({code!r})))
    else:  # the server's Python is another than the one that compiled them
        import json

        sources = json.loads(plpy.execute("select maestro.python_sources() as sources")[0]["sources"])
        code = {{name: compile(text, "<maestro " + name + ">", "exec") for name, text in sources.items()}}

    class Embedded:
        def find_spec(self, name, path=None, target=None):
            if name in code:
                return importlib.machinery.ModuleSpec(name, self, is_package="." not in name)

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            exec(code[module.__name__], module.__dict__)

    sys.meta_path[:] = [Embedded()] + [f for f in sys.meta_path if type(f).__name__ != "Embedded"]
    for name in list(sys.modules):
        if name.split(".")[0] in {packages!r}:
            del sys.modules[name]
    GD["maestro_python"] = {version!r}
return {version!r}
"""


def sources() -> dict[str, str]:
    """Module name -> source text of every module of the embedded packages."""
    found = {}
    for package in PACKAGES:
        for path in sorted((FUNCTIONS / package).glob("*.py")):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = path.read_text()
    return found


def statements() -> list[str]:
    """The SQL that (re)creates maestro.python_sources() and then maestro.load_python()."""
    texts = sources()
    version = hashlib.sha256(repr((LOADER, sorted(texts.items()))).encode()).hexdigest()[:16]
    return [
        SOURCES.format(sources=json.dumps(texts)),
        COMPILE.format(loader=LOADER, version=version, packages=PACKAGES),
    ]

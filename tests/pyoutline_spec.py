"""A spec that PyOutline itself writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import outline, outline.cuerun, outline.util
from outline.modules.shell import Shell

outline.util.get_uid = lambda: 1000  # tests may run as root, who may not submit
job = outline.Outline("pyoutline-job", frame_range="1-10", shot="sh01", show="demo", user="anna")
render = Shell("render", command=["render", "-f", "#IFRAME#"], range="1-10", chunk=2, threads=2, threadable=True,
               memory="2g", tags="general")
comp = Shell("comp", command=["comp", "#FRAME#"], range="1-10")
comp.depend_on(render)
last = Shell("last", command=["last"], range="1-1")
last.depend_all(comp)
for layer in (render, comp, last):
    job.add_layer(layer)
launcher = outline.cuerun.OutlineLauncher(job, user="anna")
sys.stdout.write(launcher.serialize(use_pycuerun=False))
"""


def serialize(home: Path) -> bytes:
    """In a process of its own, because PyOutline reads its settings on import. `home` is an empty directory."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OUTLINE_", "OL_"))}
    environment.update(HOME=str(home), PYTHONWARNINGS="ignore")
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, cwd=home, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout

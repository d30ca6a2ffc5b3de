"""The demo's job, as an OpenCue spec: a film of N frames, and a contact sheet of all of them."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from db.cluster import ROOT

SHOW, SHOT, NAME = "demo", "film", "film"
NOBODY = 65534  # RQD refuses to run frames as root; here they run as whoever started the demo

SPEC = """\
<?xml version="1.0"?>
<!DOCTYPE spec PUBLIC "SPI Cue Specification Language" "http://localhost:8080/spcue/dtd/cjsl-1.15.dtd">
<spec>
  <facility>local</facility>
  <show>{show}</show>
  <shot>{shot}</shot>
  <user>{user}</user>
  <uid>{uid}</uid>
  <job name="{name}">
    <paused>False</paused>
    <priority>100</priority>
    <maxretries>2</maxretries>
    <autoeat>False</autoeat>
    <layers>
      <layer name="render" type="Render">
        <cmd>{render}</cmd>
        <range>1-{frames}</range>
        <chunk>1</chunk>
        <cores>1</cores>
        <threadable>False</threadable>
        <memory>256m</memory>
        <services><service>shell</service></services>
      </layer>
      <layer name="contact" type="Util">
        <cmd>{contact}</cmd>
        <range>1</range>
        <chunk>1</chunk>
        <cores>1</cores>
        <threadable>False</threadable>
        <memory>256m</memory>
        <services><service>shell</service></services>
      </layer>
    </layers>
  </job>
  <depends>
    <depend type="LAYER_ON_LAYER">
      <depjob>{name}</depjob>
      <deplayer>contact</deplayer>
      <onjob>{name}</onjob>
      <onlayer>render</onlayer>
    </depend>
  </depends>
</spec>
"""


def spec(frames: int, pictures: Path) -> str:
    """The XML of a film of `frames` frames whose pictures go to the directory `pictures`."""
    python = shlex.quote(sys.executable)
    # #ZFRAME# is the frame's number with leading zeros, #IFRAME# without.
    render = (
        f"{python} {shlex.quote(str(ROOT / 'demo/render.py'))} --frame #IFRAME# --of {frames}"
        f" --out {shlex.quote(str(pictures))}/frame.#ZFRAME#.png"
    )
    contact = (
        f"{python} {shlex.quote(str(ROOT / 'demo/contact.py'))} --pictures {shlex.quote(str(pictures))} --of {frames}"
    )
    return SPEC.format(
        show=SHOW, shot=SHOT, name=NAME, user=escape(_user()), uid=os.getuid() or NOBODY, frames=frames,
        render=escape(render), contact=escape(contact),
    )  # fmt: skip


def _user() -> str:
    if os.getuid() == 0:  # root may not submit
        return "demo"
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "demo"

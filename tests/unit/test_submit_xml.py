"""OpenCue's spec XML: what it becomes, and what is refused and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.errors import MaestroError
from jobspec.spec import parse as parse_spec
from submit import api, xml
from tests.pyoutline_spec import serialize

DOCTYPE = '<!DOCTYPE spec PUBLIC "SPI Cue  Specification Language" "http://localhost:8080/spcue/dtd/cjsl-1.15.dtd">'
SPEC = f"""<?xml version="1.0"?>{DOCTYPE}
<spec>
  <facility>local</facility><show>demo</show><shot>sh01</shot><user>anna</user><uid>1000</uid>
  <job name="work">
    <paused>False</paused><priority>7</priority><maxretries>2</maxretries><maxcores>64</maxcores><os/>
    <env><key name="A">1 </key></env>
    <layers>
      <layer name="render" type="Render">
        <cmd>render -f #IFRAME# &amp;&amp; true</cmd>
        <range>1-10</range><chunk>2</chunk><cores>2.0</cores><threadable>True</threadable><memory>4g</memory>
        <tags>general | desktop</tags>
        <limits><limit>nuke</limit></limits>
        <env><key name="B">2</key></env>
        <services><service>maya</service></services>
        <outputs><output name="main">/tmp/a.exr</output></outputs>
      </layer>
      <layer name="comp" type="Util"><cmd>comp</cmd><range>1-10</range><chunk>1</chunk></layer>
    </layers>
  </job>
  <depends>
    <depend type="FRAME_BY_FRAME" anyframe="False">
      <depjob>work</depjob><deplayer>comp</deplayer><onjob>work</onjob><onlayer>render</onlayer>
    </depend>
  </depends>
</spec>
"""


def refused(text: str | bytes) -> str:
    with pytest.raises(MaestroError) as caught:
        xml.parse(text.encode() if isinstance(text, str) else text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_spec_becomes_its_json_form() -> None:
    spec = xml.parse(SPEC.encode()).spec
    assert (spec["show"], spec["uid"]) == ("demo", "1000")
    job = spec["jobs"][0]
    assert (job["name"], job["priority"], job["env"]) == ("work", "7", {"A": "1 "})
    assert "os" not in job
    layer = job["layers"][0]
    assert layer == {
        "name": "render", "type": "Render", "cmd": "render -f #IFRAME# && true", "range": "1-10", "chunk": "2",
        "cores": "2.0", "threadable": "True", "memory": "4g", "tags": "general | desktop", "limits": ["nuke"],
        "env": {"B": "2"}, "services": ["maya"], "outputs": ["/tmp/a.exr"],
    }  # fmt: skip
    assert spec["depends"] == [{
        "type": "FRAME_BY_FRAME", "anyframe": "False", "depjob": "work", "deplayer": "comp", "onjob": "work",
        "onlayer": "render"}]  # fmt: skip
    assert parse_spec(spec).jobs[0].layers[0].cores == 200


def test_lines_are_known_by_json_path() -> None:
    document = xml.parse(SPEC.encode())
    assert document.line("jobs[0].layers[0].range") == 10
    assert document.line("jobs[0].layers[1].cmd") == 17
    assert document.line("jobs[0].layers[1].cores") == 17  # not given: the layer's own line
    assert document.line("depends[0].onlayer") == 22
    assert document.line("nowhere") == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<priority>7</priority>", "<prio>7</prio>", "line 5: <prio> is not known"),
        ("<chunk>2</chunk>", "<chunk>2</chunk><chunk>3</chunk>", "line 10: <chunk> is given twice"),
        ("<service>maya</service>", "<svc>maya</svc>", "line 14: <svc> is not known in <services>"),
        ('<key name="B">', "<key>", "line 13: <key> has no name"),
        ('name="comp"', 'nam="comp"', 'line 17: attribute "nam" is not known'),
        ("<cmd>comp</cmd>", "<cmd>a <b>c</b></cmd>", "line 17: <cmd> holds <b>"),
        ("</layers>", "", "line 19, column 5: this is not well-formed XML"),
        ("&amp;&amp;", "&both;", "line 9, column"),
        ("<spec>", "<job>", "line 2"),
    ],
)
def test_a_fault_names_its_line(old: str, new: str, message: str) -> None:
    assert old in SPEC
    text = SPEC.replace(old, new, 1)
    if new == "<job>":
        text = text.replace("</spec>", "</job>")
    assert message in refused(text)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "doctype",
    [
        f'<!DOCTYPE spec [<!ENTITY l0 "ha">{LAUGHS}]>',
        f'<!DOCTYPE spec [<!ENTITY big "{"x" * 10000}">]>',
        '<!DOCTYPE spec [<!ENTITY file SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE spec [<!ENTITY % other SYSTEM "http://localhost:1/other.dtd"> %other;]>',
        '<!DOCTYPE spec [<!ENTITY pic SYSTEM "a.png" NDATA png>]>',
    ],
    ids=["laughs", "blow-up", "file", "parameter", "unparsed"],
)
def test_entities_are_refused(doctype: str) -> None:
    text = refused(SPEC.replace(DOCTYPE, doctype))
    assert text.startswith("line 1: ")
    assert "entity" in text or "another file" in text


def test_the_doctype_is_not_fetched(tmp_path: Path) -> None:
    dtd = tmp_path / "spec.dtd"
    dtd.write_text('<!ENTITY who "anna">')
    text = SPEC.replace(DOCTYPE, f'<!DOCTYPE spec SYSTEM "{dtd.as_uri()}">')
    assert xml.parse(text.encode()).spec["user"] == "anna"
    assert "well-formed" in refused(text.replace("<user>anna", "<user>&who;"))


def test_too_large_a_spec_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(xml, "BYTES_MAX", 100)
    assert "bytes" in refused(SPEC)
    path = tmp_path / "spec.json"
    path.write_text("{" + " " * 200)
    with pytest.raises(MaestroError, match="over 100 bytes"):
        api._load(path)


def test_other_encodings_are_read() -> None:
    text = SPEC.replace('version="1.0"', 'version="1.0" encoding="ISO-8859-1"').replace("comp</cmd>", "fl\xfcgel</cmd>")
    assert xml.parse(text.encode("latin-1")).spec["jobs"][0]["layers"][1]["cmd"] == "fl\xfcgel"
    assert "not well-formed" in refused(SPEC.replace("comp</cmd>", "\xff</cmd>").encode("latin-1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"show": }', "line 1, column 10: this is not JSON"),
        (b'{"a":\n "b\xff"}', "is not UTF-8"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
        (b"show: demo", "line 1, column 1: this is not well-formed XML"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_neither_xml_nor_json_says_where(content: bytes, message: str) -> None:
    with pytest.raises(MaestroError) as caught:
        api.read(content)
    assert message in str(caught.value)


def test_json_numbers_keep_their_point() -> None:
    document = api.read(b'\xef\xbb\xbf{"cores": 2.0, "n": 3}')
    assert api._dumps(document.spec) == '{"cores": "2.0", "n": 3}'


def test_what_pyoutline_writes_is_read(tmp_path: Path) -> None:
    content = serialize(tmp_path)
    assert b"<!DOCTYPE" in content
    spec = parse_spec(api.read(content).spec)
    job = spec.jobs[0]
    assert [(layer.name, layer.chunk, layer.cores) for layer in job.layers] == [
        ("render", 2, 200), ("comp", 1, None), ("last", 1, None)]  # fmt: skip
    assert job.layers[0].memory == 2 * 1024 * 1024
    assert [(depend.type, depend.deplayer, depend.onlayer) for depend in spec.depends] == [
        ("FRAME_BY_FRAME", "comp", "render"), ("LAYER_ON_LAYER", "last", "comp")]  # fmt: skip

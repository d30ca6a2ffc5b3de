"""OpenCue's spec XML (the cjsl-1.x family) to the JSON form of maestro.submit_job.

The text comes from outside: the DOCTYPE that PyOutline and CueSubmit write is accepted and never fetched; entity
declarations and external references are refused, so nothing expands and nothing is read from disk or network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException, EntitiesForbidden
from defusedxml.ElementTree import DefusedXMLParser

from db.errors import MaestroError

BYTES_MAX = 32 * 1024 * 1024

SPEC_TEXTS = ("facility", "dept", "show", "shot", "user", "email", "uid")
JOB_TEXTS = ("paused", "priority", "maxretries", "maxcores", "maxgpus", "autoeat", "os")
LAYER_TEXTS = (
    "cmd", "range", "chunk", "cores", "threadable", "memory", "gpus", "gpu", "gpu_memory", "timeout", "timeout_llu",
    "tags",
)  # fmt: skip
DEPEND_TEXTS = ("depjob", "deplayer", "depframe", "onjob", "onlayer", "onframe")


@dataclass
class Document:
    """The JSON form, and the line of each of its elements by JSON path ("jobs[0].layers[1].range")."""

    spec: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)

    def line(self, path: str) -> int | None:
        """Line of the element at `path`, else of the nearest one around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get("")


class _LineBuilder(TreeBuilder):
    """Builds the tree and notes the line on which each element starts."""

    def __init__(self) -> None:
        super().__init__()
        self.parser: Any = None
        self.lines: dict[int, int] = {}
        self.elements: list[Element] = []  # kept, so that their ids stay theirs

    def start(self, tag: Any, attrs: Any) -> Element:
        element = super().start(tag, attrs)
        self.lines[id(element)] = self.parser.parser.CurrentLineNumber
        self.elements.append(element)
        return element


def parse(text: bytes) -> Document:
    """Reads a spec. Raises MaestroError with one line that names the line or element."""
    if len(text) > BYTES_MAX:
        raise MaestroError(f"the spec has {len(text):,} bytes (at most {BYTES_MAX:,} are read)")
    builder = _LineBuilder()
    parser = DefusedXMLParser(target=builder, forbid_dtd=False, forbid_entities=True, forbid_external=True)
    builder.parser = parser
    try:
        parser.feed(text)
        root = parser.close()
    except EntitiesForbidden as error:
        raise MaestroError(
            f"line {parser.parser.CurrentLineNumber}: entity {error.name} is declared (write its value instead)"
        ) from None
    except DefusedXmlException:
        raise MaestroError(
            f"line {parser.parser.CurrentLineNumber}: another file is referred to (put its content into the spec)"
        ) from None
    except ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise MaestroError(f"line {line}, column {column + 1}: this is not well-formed XML: {reason}") from None
    return _Reader(builder.lines).document(root)


class _Reader:
    def __init__(self, element_lines: dict[int, int]) -> None:
        self.element_lines = element_lines
        self.lines: dict[str, int] = {}

    def document(self, root: Element) -> Document:
        if root.tag != "spec":
            raise self.fault(root, f"the root element is <{root.tag}>", "an OpenCue job spec starts with <spec>")
        spec: dict[str, Any] = {"jobs": [], "depends": []}
        self.note(root, "")
        for element in root:
            tag = element.tag
            if tag == "job":
                spec["jobs"].append(self.job(element, f"jobs[{len(spec['jobs'])}]"))
            elif tag == "depends":
                self.depends(element, spec["depends"])
            else:
                self.text(element, spec, "", SPEC_TEXTS)
        return Document(spec, self.lines)

    def job(self, job: Element, path: str) -> dict[str, Any]:
        self.note(job, path)
        found: dict[str, Any] = {"layers": []}
        self.attributes(job, found, path, ("name",))
        for element in job:
            if element.tag == "layers":
                self.note(element, f"{path}.layers")
                for layer in self.children(element, "layer"):
                    found["layers"].append(self.layer(layer, f"{path}.layers[{len(found['layers'])}]"))
            elif element.tag == "env":
                self.env(element, found, path)
            elif element.tag == "localbook":
                found["localbook"] = "given"
            elif element.tag == "depends":
                found.setdefault("depends", [])
                self.depends(element, found["depends"], path)
            else:
                self.text(element, found, path, JOB_TEXTS)
        return found

    def layer(self, layer: Element, path: str) -> dict[str, Any]:
        self.note(layer, path)
        found: dict[str, Any] = {}
        self.attributes(layer, found, path, ("name", "type"))
        for element in layer:
            if element.tag == "env":
                self.env(element, found, path)
            elif element.tag in ("limits", "services", "outputs"):
                self.note(element, f"{path}.{element.tag}")
                items = [(child.text or "").strip() for child in self.children(element, element.tag[:-1])]
                found[element.tag] = [item for item in items if item]
            else:
                self.text(element, found, path, LAYER_TEXTS)
        return found

    def depends(self, depends: Element, found: list[dict[str, Any]], owner: str = "") -> None:
        for element in self.children(depends, "depend"):
            path = f"{owner}.depends[{len(found)}]".lstrip(".")
            self.note(element, path)
            depend: dict[str, Any] = {}
            self.attributes(element, depend, path, ("type", "anyframe"))
            for child in element:
                self.text(child, depend, path, DEPEND_TEXTS)
            found.append(depend)

    def env(self, env: Element, found: dict[str, Any], path: str) -> None:
        self.note(env, f"{path}.env")
        found["env"] = {}
        for key in self.children(env, "key"):
            name = key.get("name")
            if not name:
                raise self.fault(key, "<key> has no name", 'write <key name="NAME">value</key>')
            found["env"][name] = key.text or ""

    def children(self, parent: Element, tag: str) -> list[Element]:
        for child in parent:
            if child.tag != tag:
                raise self.fault(child, f"<{child.tag}> is not known in <{parent.tag}>", f"<{tag}> is")
        return list(parent)

    def text(self, element: Element, found: dict[str, Any], path: str, known: tuple[str, ...]) -> None:
        """Put the element's text under its own name; an empty element is as good as none."""
        tag = element.tag
        if tag not in known:
            raise self.fault(element, f"<{tag}> is not known here", "known are " + ", ".join(known))
        if tag in found:
            raise self.fault(element, f"<{tag}> is given twice", "keep one of them")
        if len(element):
            raise self.fault(element, f"<{tag}> holds <{element[0].tag}>", "a text is expected")
        self.note(element, f"{path}.{tag}".lstrip("."))
        if element.text and element.text.strip():
            found[tag] = element.text

    def attributes(self, element: Element, found: dict[str, Any], path: str, known: tuple[str, ...]) -> None:
        for name, value in element.attrib.items():
            if name not in known:
                raise self.fault(element, f'attribute "{name}" is not known', "known are " + ", ".join(known))
            found[name] = value
            self.note(element, f"{path}.{name}")

    def note(self, element: Element, path: str) -> None:
        self.lines.setdefault(path, self.element_lines[id(element)])

    def fault(self, element: Element, message: str, hint: str) -> MaestroError:
        return MaestroError(f"line {self.element_lines[id(element)]}: {message} ({hint})")

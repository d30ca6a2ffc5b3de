"""The one error of the package: what is wrong with a spec, where, and what would be right."""

from __future__ import annotations

from typing import Tuple, Union

# Keys and list positions from the top of the spec: ("jobs", 0, "layers", 2, "range")
Path = Tuple[Union[str, int], ...]


def dotted(path: Path) -> str:
    """The path as text: jobs[0].layers[2].range."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")


class SpecError(Exception):
    """A spec that cannot be submitted.

    where: for people ("job comp, layer render, range"); path: the same place in the JSON form;
    message: what is wrong there; hint: what would be right.
    """

    def __init__(self, where: str, message: str, hint: str = "", path: Path = ()) -> None:
        self.where = where
        self.message = message
        self.hint = hint
        self.path = path
        super().__init__(f"{where}: {message}" if where else message)

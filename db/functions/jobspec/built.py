"""Jobs and layers on their way from spec to rows: frames and depends are built from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

from jobspec.spec import JobSpec, LayerSpec


@dataclass
class BuiltLayer:
    """A layer of the spec, and the row of table layer that it becomes."""

    pk_layer: str
    pk_job: str
    spec: LayerSpec
    order: int
    row: Dict[str, Any]
    first: int = 0  # position of its first frame in the submission's frames
    count: int = 0  # frames


@dataclass
class BuiltJob:
    """A job of the spec with its layers, and the row of table job that it becomes."""

    pk_job: str
    name: str
    spec: JobSpec
    row: Dict[str, Any]
    layers: List[BuiltLayer] = field(default_factory=list)

"""Caps that a plan spends as it places: job, folder and show cores, gpus, and limits. All are inclusive."""

from __future__ import annotations

from typing import Dict, List, Tuple

from planner.model import Ask, Caps, Layer

NO_CAP = 1 << 62


class Ledger:
    """What each cap still allows. Built from the snapshot, spent frame by frame."""

    def __init__(self, caps: Caps) -> None:
        self._jobs: Dict[str, List[int]] = {key: list(value) for key, value in caps.jobs.items()}
        self._folders: Dict[str, List[int]] = {key: list(value) for key, value in caps.folders.items()}
        self._shows: Dict[Tuple[str, str], int] = dict(caps.shows)
        self._limits: Dict[str, int] = dict(caps.limits)
        self._layer_limits = caps.layer_limits

    def refusals(self, layer: Layer) -> List[str]:
        """The caps that refuse even one smallest frame of `layer` wherever it runs; empty if none does."""
        least = max(layer.cores_min, 1)
        found = []
        job = self._jobs.get(layer.pk_job)
        if job is not None:
            if job[0] < least:
                found.append("job cores")
            if layer.gpus_min and job[1] < layer.gpus_min:
                found.append("job gpus")
        folder = self._folders.get(layer.pk_folder)
        if folder is not None:
            if folder[0] < least:
                found.append("folder cores")
            if layer.gpus_min and folder[1] < layer.gpus_min:
                found.append("folder gpus")
        for limit in self._layer_limits.get(layer.pk_layer, ()):
            if self._limits.get(limit, NO_CAP) < 1:
                found.append("limit " + limit)
        return found

    def allows(self, layer: Layer) -> bool:
        """Whether gpus and limits leave room for a frame; cores are `headroom`'s, which differs by allocation."""
        if layer.gpus_min:
            for owner in (self._jobs.get(layer.pk_job), self._folders.get(layer.pk_folder)):
                if owner is not None and owner[1] < layer.gpus_min:
                    return False
        for limit in self._layer_limits.get(layer.pk_layer, ()):
            if self._limits.get(limit, NO_CAP) < 1:
                return False
        return True

    def headroom(self, layer: Layer, pk_alloc: str) -> int:
        """Core points that job, folder and the show's burst leave `layer` in an allocation."""
        room = self._shows.get((layer.pk_show, pk_alloc), 0)
        job = self._jobs.get(layer.pk_job)
        if job is not None and job[0] < room:
            room = job[0]
        folder = self._folders.get(layer.pk_folder)
        if folder is not None and folder[0] < room:
            room = folder[0]
        return room

    def spend(self, layer: Layer, pk_alloc: str, ask: Ask) -> None:
        """Charge one frame. The caller has seen that it fits."""
        self._shows[(layer.pk_show, pk_alloc)] -= ask.cores
        for owner in (self._jobs.get(layer.pk_job), self._folders.get(layer.pk_folder)):
            if owner is not None:
                owner[0] -= ask.cores
                owner[1] -= ask.gpus
        for limit in self._layer_limits.get(layer.pk_layer, ()):
            if limit in self._limits:
                self._limits[limit] -= 1

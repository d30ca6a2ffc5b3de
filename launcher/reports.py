"""RQD's reports as the JSON that the database takes, checked on the way. Built by hand: it is on the hot path.

Names are the protobuf fields'; memory is KiB and cores are core points, as RQD reports them.
"""

from __future__ import annotations

from typing import Any

from opencue_proto import host_pb2, report_pb2

_STATES = dict(host_pb2.HardwareState.items())
_STATE_NAMES = {number: name for name, number in _STATES.items()}
_MEMORY = ("total_swap", "total_mem", "total_mcp", "free_swap", "free_mem", "free_mcp", "free_gpu_mem", "total_gpu_mem")
_COUNTS = ("num_procs", "cores_per_proc", "num_gpus")
NAME_MAX = 128


class BadReport(Exception):
    """A report that cannot be meant; its one line says what is wrong with what."""


def _name(host: report_pb2.RenderHost) -> str:
    name: str = host.name
    if not name or not name.strip() or len(name) > NAME_MAX or "\0" in name:
        raise BadReport(f"report with host.name {name[:NAME_MAX]!r}: it must name a host")
    return name


def _host(host: report_pb2.RenderHost) -> dict[str, Any]:
    name = _name(host)
    values: dict[str, Any] = {
        "name": name,
        "nimby_enabled": host.nimby_enabled,
        "nimby_locked": host.nimby_locked,
        "facility": host.facility,
        "load": host.load,
        "boot_time": host.boot_time,
        "tags": list(host.tags),
        "state": _STATE_NAMES.get(host.state, "UP"),
        "attributes": dict(host.attributes),
    }
    for field in (*_MEMORY, *_COUNTS):
        value = getattr(host, field)
        if value < 0:
            raise BadReport(f"report of host {name}: {field} is {value}, it must not be negative")
        values[field] = value
    return values


def _frame(name: str, frame: report_pb2.RunningFrameInfo) -> dict[str, Any]:
    if not frame.frame_id:
        raise BadReport(f"report of host {name}: a frame has no frame_id")
    values = {
        "resource_id": frame.resource_id,
        "job_id": frame.job_id,
        "job_name": frame.job_name,
        "frame_id": frame.frame_id,
        "frame_name": frame.frame_name,
        "layer_id": frame.layer_id,
        "num_cores": frame.num_cores,
        "start_time": frame.start_time,
        "max_rss": frame.max_rss,
        "rss": frame.rss,
        "max_vsize": frame.max_vsize,
        "vsize": frame.vsize,
        "llu_time": frame.llu_time,
        "num_gpus": frame.num_gpus,
        "max_used_gpu_memory": frame.max_used_gpu_memory,
        "used_gpu_memory": frame.used_gpu_memory,
        "used_swap_memory": frame.used_swap_memory,
        "max_pss": frame.max_pss,
        "pss": frame.pss,
    }
    for field in ("max_rss", "rss", "max_vsize", "vsize", "max_used_gpu_memory", "used_gpu_memory"):
        if values[field] < 0:
            raise BadReport(
                f"report of host {name}: {field} of frame {frame.frame_id} is {values[field]}, "
                "it must not be negative"
            )
    return values


def _core_info(info: report_pb2.CoreDetail) -> dict[str, Any]:
    return {
        "total_cores": info.total_cores,
        "idle_cores": info.idle_cores,
        "locked_cores": info.locked_cores,
        "booked_cores": info.booked_cores,
    }


def startup(report: report_pb2.BootReport) -> dict[str, Any]:
    return {"host": _host(report.host), "core_info": _core_info(report.core_info)}


def status(report: report_pb2.HostReport) -> dict[str, Any]:
    host = _host(report.host)
    frames = [_frame(host["name"], frame) for frame in report.frames]
    return {"host": host, "frames": frames, "core_info": _core_info(report.core_info)}


def completion(report: report_pb2.FrameCompleteReport) -> dict[str, Any]:
    """A clock that was set back during a run must not lose its end: such a run time counts as 0."""
    host, frame = report.host, report.frame
    name = _name(host)
    for field in ("max_rss", "max_used_gpu_memory"):
        value = getattr(frame, field)
        if value < 0:
            raise BadReport(
                f"completion from host {name}: {field} of frame {frame.frame_id} is {value}, it must not be negative"
            )
    if not frame.frame_id or not frame.resource_id:
        raise BadReport(f"completion from host {name}: frame_id and resource_id must be given")
    return {
        "host": {"name": name, "nimby_locked": host.nimby_locked, "free_mem": max(host.free_mem, 0)},
        "frame": {
            "resource_id": frame.resource_id,
            "frame_id": frame.frame_id,
            "frame_name": frame.frame_name,
            "job_name": frame.job_name,
            "job_id": frame.job_id,
            "layer_id": frame.layer_id,
            "max_rss": frame.max_rss,
            "max_used_gpu_memory": frame.max_used_gpu_memory,
            "llu_time": frame.llu_time,
        },
        "exit_status": report.exit_status,
        "exit_signal": report.exit_signal,
        "run_time": max(report.run_time, 0),
    }

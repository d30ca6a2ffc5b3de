"""Makes the message that tells RQD to run a frame. Pure: rows in, protobuf out, filled as Cuebot fills it.

Cores are core points, memory is KiB, both as RQD expects them.
"""

from __future__ import annotations

from typing import Any

from opencue_proto import rqd_pb2

from jobspec.tokens import substitute

# Names the booking in the frame's environment, and so in the head of its log: see salvage.py.
PROC_VARIABLE = "MAESTRO_PROC"
SOFT_LIMIT_PERCENT = 160  # of the layer's memory minimum; RQD minds both limits in Docker mode only
HARD_LIMIT_PERCENT = 200


class CannotRun(Exception):
    """The rows make no frame that RQD could run; its text says why."""


def environment(launch: dict[str, Any], layer: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """The frame's environment: the job's, then the layer's, then OpenCue's own names; later ones win."""
    return {
        **job["env"],
        **layer["env"],
        "CUE3": "1",
        "CUE_THREADS": str(max(launch["cores"] // 100, 1)),
        "CUE_MEMORY": str(launch["mem"]),
        "CUE_GPUS": str(launch["gpus"]),
        "CUE_GPU_MEMORY": str(launch["gpu_mem"]),
        "CUE_LOG_PATH": job["log_dir"],
        "CUE_RANGE": layer["range"],
        "CUE_CHUNK": str(layer["chunk"]),
        "CUE_IFRAME": str(launch["frame_number"]),
        "CUE_LAYER": layer["name"],
        "CUE_JOB": job["name"],
        "CUE_FRAME": launch["frame_name"],
        "CUE_SHOW": job["show"],
        "CUE_SHOT": job["shot"],
        "CUE_USER": job["user"],
        "CUE_JOB_ID": launch["pk_job"],
        "CUE_LAYER_ID": launch["pk_layer"],
        "CUE_FRAME_ID": launch["pk_frame"],
        "CUE_THREADABLE": "1" if layer["threadable"] else "0",
        PROC_VARIABLE: launch["pk_proc"],
    }


def run_frame(launch: dict[str, Any], layer: dict[str, Any], job: dict[str, Any], now_ms: int) -> rqd_pb2.RunFrame:
    """The RunFrame of one booking. Arguments: rows of claim_launches; `now_ms` epoch milliseconds.

    Raises CannotRun when the rows do not fit RQD (a range without the frame, a number out of its field's range).
    """
    try:
        message = rqd_pb2.RunFrame(
            resource_id=launch["pk_proc"],
            job_id=launch["pk_job"],
            job_name=job["name"],
            frame_id=launch["pk_frame"],
            frame_name=launch["frame_name"],
            layer_id=launch["pk_layer"],
            command=substitute(
                layer["cmd"],
                frame_number=launch["frame_number"],
                frame_name=launch["frame_name"],
                layer_name=layer["name"],
                job_name=job["name"],
                str_range=layer["range"],
                chunk=layer["chunk"],
            ),
            user_name=job["user"],
            log_dir=job["log_dir"],
            show=job["show"],
            shot=job["shot"],
            start_time=now_ms,
            num_cores=launch["cores"],
            ignore_nimby=launch["local"],
            environment=environment(launch, layer, job),
            num_gpus=launch["gpus"],
            os=job["os"],
            soft_memory_limit=layer["mem_min"] * SOFT_LIMIT_PERCENT // 100,
            hard_memory_limit=layer["mem_min"] * HARD_LIMIT_PERCENT // 100,
            loki_url=job["loki_url"],
        )
        if job["uid"] is not None:
            message.uid = job["uid"]  # unset means RQD's own choice; 0 would be refused
    except (ValueError, TypeError) as error:
        raise CannotRun(str(error)) from error
    return message

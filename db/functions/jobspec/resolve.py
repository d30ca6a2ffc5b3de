"""From a parsed spec and the farm's data to rows: names, defaults of services, post jobs, frames, depends."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from jobspec import depends as depends_module
from jobspec.built import BuiltJob, BuiltLayer
from jobspec.errors import SpecError
from jobspec.framerange import chunked
from jobspec.model import DEFAULT_SERVICE, Context, Depends, Frames, NewKeys, Service, Show, Submission
from jobspec.reader import clip
from jobspec.spec import MEM_MIN, JobSpec, LayerSpec, Spec, conform_job, parse
from jobspec.tokens import frame_name

NO_CORE_CAP = 1_000_000_000  # core points of a job without <maxcores>: ten million cores
NO_GPU_CAP = 1_000_000
POST_RETRIES = 2
POST_USER = "monitor"


def normalise(document: Any, context: Context, new_keys: NewKeys) -> Submission:
    """The rows of a JSON document. Raises SpecError."""
    return resolve(parse(document), context, new_keys)


def show_of(spec: Spec, context: Context) -> Show:
    """The show to submit to; raises SpecError if it cannot take jobs."""
    show = context.show
    if show is None:
        raise SpecError("show", f'"{clip(spec.show)}" is not a show', "name a show of this farm", ("show",))
    if not show.active:
        raise SpecError("show", f'"{show.name}" is not active', "activate the show, or submit to another", ("show",))
    if show.pk_folder is None or show.pk_dept is None:
        raise SpecError("show", f'"{show.name}" has no root folder', "create the show's root folder first", ("show",))
    return show


def resolve(spec: Spec, context: Context, new_keys: NewKeys) -> Submission:
    show = show_of(spec, context)
    facility = _facility(spec, context)
    out = Submission(
        rows={
            table: [] for table in ("job", "job_env", "layer", "layer_env", "layer_limit", "layer_output", "job_post")
        },
        frames=Frames(),
        depends=Depends(),
        warnings=list(spec.warnings),
    )
    # Jobs by full name; the value's second half is the job of its Post layers.
    built: Dict[str, Tuple[BuiltJob, Optional[BuiltJob]]] = {}
    for job in spec.jobs:
        name = _job_name(job, spec, show, context)
        if name in built:
            raise job.fault("name", f'the spec has two jobs named "{name}"', "give each job its own name")
        built[name] = _job(job, name, spec, show, facility, context, new_keys, out)
    depends_module.build(spec, show, built, context, new_keys, out)
    return out


def _facility(spec: Spec, context: Context) -> str:
    by_name = {facility.name.lower(): facility for facility in context.facilities}
    if spec.facility:
        if spec.facility not in by_name:
            known = ", ".join(sorted(by_name)) or "none"
            raise SpecError(
                "facility", f'"{clip(spec.facility)}" is not a facility', f"known: {known[:200]}", ("facility",)
            )
        return by_name[spec.facility].pk_facility
    defaults = [facility for facility in context.facilities if facility.default] or context.facilities
    if len(defaults) != 1:
        raise SpecError("facility", "is missing and the farm has no default one", "name the facility", ("facility",))
    return defaults[0].pk_facility


def _job_name(job: JobSpec, spec: Spec, show: Show, context: Context) -> str:
    try:
        name = conform_job(job.name, show.name, spec.shot, spec.user)
    except ValueError as error:
        raise job.fault("name", str(error), "three or more letters, digits, _ . and - are allowed") from None
    if len(name) > 255:
        raise job.fault("name", f"makes a job name of {len(name)} characters", "at most 255 are stored")
    if name in context.pending:
        raise job.fault("name", f'a job named "{name}" is pending', "wait for it, kill it, or choose another name")
    return name


def _job(
    job: JobSpec, name: str, spec: Spec, show: Show, facility: str, context: Context, new_keys: NewKeys, out: Submission
) -> Tuple[BuiltJob, Optional[BuiltJob]]:
    """The job's rows, and those of its post job if it has Post layers."""

    def make(full_name: str, user: str, uid: Optional[int], state: str, retries: int, paused: bool) -> BuiltJob:
        pk_job = new_keys(1)[0]
        row = {
            "pk_job": pk_job,
            "pk_folder": show.pk_folder,
            "pk_show": show.pk_show,
            "pk_dept": show.pk_dept,
            "pk_facility": facility,
            "str_name": full_name,
            "str_show": show.name,
            "str_shot": spec.shot,
            "str_user": user,
            "str_email": spec.email,
            "int_uid": uid,
            "str_state": state,
            "str_os": job.os,
            "str_log_dir": f"{context.log_root}/{show.name}/{spec.shot}/logs/{full_name}--{pk_job}",
            "b_paused": paused or show.paused,
            "b_autoeat": job.autoeat,
            "int_max_retries": retries,
            "int_priority": job.priority,
            "int_max_cores": job.max_cores or NO_CORE_CAP,
            "int_max_gpus": job.max_gpus or NO_GPU_CAP,
            "int_frame_count": 0,
            "int_layer_count": 0,
        }
        if len(str(row["str_log_dir"])) > 4000:
            raise job.fault("name", "makes a log directory of over 4000 characters", "shorten setting log_root")
        out.rows["job"].append(row)
        out.rows["job_env"] += [{"pk_job": pk_job, "str_key": key, "str_value": value} for key, value in job.env]
        return BuiltJob(pk_job, full_name, job, row)

    main = make(name, spec.user, spec.uid, "PENDING", job.max_retries, job.paused)
    post = None
    if any(layer.type == "POST" for layer in job.layers):
        post_name = f"{name}_post_job_{context.now_ms}"
        if len(post_name) > 255:
            raise job.fault("name", f"makes a post job name of {len(post_name)} characters", "at most 255 are stored")
        post = make(post_name, POST_USER, None, "POSTED", POST_RETRIES, False)
        for key, value in (("CUE_PARENT_JOB_ID", main.pk_job), ("CUE_PARENT_JOB", name)):
            out.rows["job_env"].append({"pk_job": post.pk_job, "str_key": key, "str_value": value})
        out.rows["job_post"].append({"pk_job": main.pk_job, "pk_post_job": post.pk_job})
    for position, layer in enumerate(job.layers):
        owner = post if post is not None and layer.type == "POST" else main
        _layer(layer, position + 1, owner, context, new_keys, out)
    return main, post


def _layer(
    layer: LayerSpec, order: int, owner: BuiltJob, context: Context, new_keys: NewKeys, out: Submission
) -> BuiltLayer:
    """The layer's rows and its frames; adds to the job's counts."""
    pk_layer = new_keys(1)[0]
    row = {"pk_layer": pk_layer, "pk_job": owner.pk_job, "str_name": layer.name, "str_cmd": layer.cmd,
           "str_range": layer.range, "int_chunk_size": layer.chunk, "int_dispatch_order": order,
           "str_type": layer.type, **_needs(layer, owner.spec, context, out)}  # fmt: skip
    built = BuiltLayer(pk_layer, owner.pk_job, layer, order, row, first=len(out.frames.pk_frame))
    out.rows["layer"].append(row)
    ends = {"pk_layer": pk_layer, "pk_job": owner.pk_job}
    out.rows["layer_env"] += [{**ends, "str_key": key, "str_value": value} for key, value in layer.env]
    out.rows["layer_output"] += [{**ends, "str_filespec": path} for path in layer.outputs]
    for limit in layer.limits:
        if limit not in context.limits:
            raise layer.fault("limits", f'"{clip(limit)}" is not a limit', "create the limit first, or leave it out")
        out.rows["layer_limit"].append({"pk_layer": pk_layer, "pk_limit_record": context.limits[limit]})

    numbers = [chunk[0] for chunk in chunked(layer.numbers, layer.chunk)]
    built.count = len(numbers)
    frames = out.frames
    frames.pk_frame += new_keys(built.count)
    frames.pk_layer += [pk_layer] * built.count
    frames.name += [frame_name(number, layer.name) for number in numbers]
    frames.number += numbers
    frames.dispatch_order += range(built.count)
    frames.depend_count += [0] * built.count
    owner.row["int_frame_count"] += built.count
    owner.row["int_layer_count"] += 1
    owner.layers.append(built)
    return built


def _needs(layer: LayerSpec, job: JobSpec, context: Context, out: Submission) -> Dict[str, Any]:
    """What a frame of the layer asks for: as written, else as the first of its services that the farm knows."""
    services = list(layer.services)
    service: Optional[Service] = None
    for name in services:
        service = context.show_services.get(name) or context.services.get(name)
        if service:
            break
    if service is None:
        service = context.show_services.get("default") or context.services.get("default") or DEFAULT_SERVICE
        if "default" not in services:
            services.append("default")
    joined = ",".join(services)
    if len(joined) > 128:
        raise layer.fault("services", f"have {len(joined)} characters together", "at most 128 are stored")

    def given(value: Optional[Any], default: Any) -> Any:
        return default if value is None else value

    cores = given(layer.cores, service.cores_min)
    gpus = given(layer.gpus, service.gpus_min)
    threadable = given(layer.threadable, service.threadable) and not 0 < cores < 100
    if job.max_cores is not None and cores > job.max_cores:
        raise layer.fault("cores", f"{cores / 100:g} cores are more than the job's maxcores {job.max_cores // 100}",
                          "raise maxcores, or ask for less")  # fmt: skip
    if job.max_gpus is not None and gpus > job.max_gpus:
        raise layer.fault("gpus", f"{gpus} gpus are more than the job's maxgpus {job.max_gpus}",
                          "raise maxgpus, or ask for less")  # fmt: skip
    if layer.cores is not None and cores > 100 and not threadable:
        out.warnings.append(f"{layer.where}: not threadable, so a frame runs on one core whatever cores says")
    return {
        "int_cores_min": cores,
        "int_cores_max": service.cores_max if service.cores_max >= cores else 0,
        "b_threadable": threadable,
        "int_mem_min": max(given(layer.memory, service.mem_min), MEM_MIN),
        "int_gpus_min": gpus,
        "int_gpus_max": service.gpus_max if service.gpus_max >= gpus else 0,
        "int_gpu_mem_min": given(layer.gpu_memory, service.gpu_mem_min),
        "int_timeout": given(layer.timeout, service.timeout),
        "int_timeout_llu": given(layer.timeout_llu, service.timeout_llu),
        "str_tags": given(layer.tags, service.tags),
        "str_services": joined,
    }

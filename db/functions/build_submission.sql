-- build_submission: the work of submit_job: reads a spec, looks up what it needs, makes its rows and stores them.
-- Called by submit_job alone, which raises what is refused here (PL/Python would put words before the message).
-- Locks and order: see submit_job and store_submission.
-- Result: the answer of submit_job, or {"refused": {"message", "hint", "path"}} with nothing stored.
create or replace function maestro.build_submission(p_spec jsonb) returns jsonb
language plpython3u volatile
set search_path = pg_catalog, public, pg_temp
as $$
plpy.execute("select maestro.load_python()")
import json
import os
from decimal import Decimal

from jobspec import depends, resolve, spec as specs
from jobspec.errors import SpecError, dotted
from jobspec.model import Context, Show


def new_keys(count):
    # Random but for a counter at the end: rows written together lie together in the indexes.
    k = os.urandom(12).hex()
    start = f"{k[:8]}-{k[8:12]}-4{k[13:16]}-{'89ab'[int(k[16], 16) & 3]}{k[17:20]}-{k[20:]}"
    return [f"{start}{number:08x}" for number in range(count)]


def ask(sql, types, *values):
    answer = plpy.execute(plpy.prepare(sql, types), values)[0]["answer"]
    return json.loads(answer) if isinstance(answer, str) else answer


def refusal(error):
    return json.dumps({"refused": {"message": str(error), "hint": error.hint, "path": dotted(error.path)}})


try:
    spec = specs.parse(json.loads(p_spec, parse_float=Decimal) if p_spec is not None else None)
    show = ask("select maestro.submission_show($1) as answer", ["text"], spec.show)
    context = Context(show=Show(**show) if show else None)
    needs = depends.needs(spec, resolve.show_of(spec, context).name)
    context = Context.from_json({
        "show": show,
        **ask("select maestro.submission_context($1, $2) as answer", ["text", "jsonb"],
              show["pk_show"], json.dumps(needs._asdict())),
    })
    made = resolve.resolve(spec, context, new_keys)
except SpecError as error:
    return refusal(error)

frames, waits = made.frames, made.depends
try:
    plpy.execute(
        plpy.prepare(
            "select maestro.store_submission("
            "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)",
            ["jsonb"] + ["text[]"] * 3 + ["bigint[]"] * 3 + ["text[]"] * 9 + ["boolean[]"] * 3,
        ),
        [
            json.dumps(made.rows),
            frames.pk_frame, frames.pk_layer, frames.name, frames.number, frames.dispatch_order, frames.depend_count,
            waits.pk_depend, waits.pk_parent, waits.type, waits.er_job, waits.er_layer, waits.er_frame,
            waits.on_job, waits.on_layer, waits.on_frame, waits.active, waits.any, waits.composite,
        ],
    )
except plpy.spiexceptions.UniqueViolation:
    # Somebody submitted a job of the same name between our look and our insert.
    return refusal(SpecError("job", "one of the same name is pending", "wait for it, kill it, or choose another name"))

return json.dumps({
    "jobs": [
        {"pk_job": job["pk_job"], "name": job["str_name"],
         "frames": job["int_frame_count"], "layers": job["int_layer_count"]}
        for job in made.rows["job"]
    ],
    "warnings": made.warnings,
})
$$;
comment on function maestro.build_submission(jsonb) is
    'Makes and stores the rows of a spec: the answer of submit_job, or {"refused": {message, hint, path}}. For '
    'submit_job alone.';

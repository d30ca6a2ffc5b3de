-- submission_service: a row of service or show_service in the words of jobspec.model.Service.
-- Called by submission_context for both tables, whose columns are the same. Core points, KiB, minutes. Errors: none.
create or replace function maestro.submission_service(p_row jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
        'name', p_row -> 'str_name', 'threadable', p_row -> 'b_threadable', 'tags', p_row -> 'str_tags',
        'cores_min', p_row -> 'int_cores_min', 'cores_max', p_row -> 'int_cores_max', 'mem_min', p_row -> 'int_mem_min',
        'gpus_min', p_row -> 'int_gpus_min', 'gpus_max', p_row -> 'int_gpus_max',
        'gpu_mem_min', p_row -> 'int_gpu_mem_min', 'timeout', p_row -> 'int_timeout',
        'timeout_llu', p_row -> 'int_timeout_llu'
    );
$$;
comment on function maestro.submission_service(jsonb) is
    'A row of service or show_service (as jsonb) with the names that the submission code uses.';

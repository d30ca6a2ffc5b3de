drop table if exists maestro.host_refusal, maestro.host_mark;

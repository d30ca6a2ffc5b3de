drop table if exists maestro.frame_wish, maestro.sweep_clock, maestro.host_boot;
drop type if exists maestro.released, maestro.drained, maestro.host_report, maestro.run_report cascade;

drop table if exists maestro.host_leak, maestro.memory_kill, maestro.layer_streak, maestro.frame_memory;

drop table if exists
    maestro.limit_probe, maestro.limit_policy, maestro.peak_sample, maestro.layer_memory, maestro.warmth,
    maestro.odometer, maestro.plan_zero, maestro.blocked_debt, maestro.reservation;

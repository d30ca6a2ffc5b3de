"""The planner: decisions over plain data. Pure: no clock, no randomness but the given seed, no database."""

"""The tick's phases: what stands between the tables and the planner. Gets the database as an argument, imports none."""

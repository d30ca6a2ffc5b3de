drop type maestro.start;

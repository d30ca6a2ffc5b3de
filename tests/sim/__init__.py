"""Tests of the simulated farm, the scenarios' verdicts and the benchmark."""

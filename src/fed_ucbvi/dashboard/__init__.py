"""The live page of runs, federations and sweeps, and metrics for Prometheus: what they show, who may look."""

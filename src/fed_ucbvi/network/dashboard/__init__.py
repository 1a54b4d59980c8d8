"""The live page of runs, federations and sweeps, and metrics for Prometheus: content and access."""

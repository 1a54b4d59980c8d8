"""The live page of runs, federations and sweeps: what it shows, who may look, how it is served; docs/dashboard.md."""

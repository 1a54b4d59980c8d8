"""Sweeps: many runs described at once, spread over processes or a cluster, kept one file a run."""

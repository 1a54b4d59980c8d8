"""Rounds: drivers that collect, the loop, regret, checkpoints; one engine for every kind of run."""

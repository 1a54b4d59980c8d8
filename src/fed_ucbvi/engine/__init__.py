"""Runs in progress: the loop over rounds, written once, and the state that is saved of it."""

"""Experiments: constants, runs, analysis."""

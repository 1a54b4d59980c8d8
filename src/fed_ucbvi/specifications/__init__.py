"""Specifications of a run: its problem, its algorithm and its options, as checked values."""

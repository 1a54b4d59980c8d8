"""Random numbers: a counter-based generator and exact discrete distributions on top of it."""

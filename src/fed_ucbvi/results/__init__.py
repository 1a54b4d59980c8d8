"""Results of runs: records, curves, files, pictures."""

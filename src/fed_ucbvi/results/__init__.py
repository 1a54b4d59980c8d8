"""What a run gives: records, curves, files, pictures."""

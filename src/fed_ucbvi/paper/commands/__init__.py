"""Commands of the paper: its experiments, its theory, and reports on runs."""

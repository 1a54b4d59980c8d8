"""The experiments of the paper and beyond it: what is run, what is claimed, how it is judged."""

"""Algorithms of other papers, as baselines, and the model-free ones of the paper's Table 1."""

"""Analysis of federations, of learnt policies and of several runs: planning, play, comparison, advice."""

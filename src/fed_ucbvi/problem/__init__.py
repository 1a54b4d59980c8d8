"""The problem: kernels, MDPs, federations and how different their agents are."""

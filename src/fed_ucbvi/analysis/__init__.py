"""What can be said of federations, of learnt policies and of several runs: inspection, planning, play, comparison."""

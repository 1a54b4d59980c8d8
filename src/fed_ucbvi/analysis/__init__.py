"""What can be said of federations and of several runs: inspection, planning, comparison."""

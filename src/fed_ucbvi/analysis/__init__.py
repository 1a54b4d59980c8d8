"""Analysis of federations (inspection, planning), of learnt policies (play) and of several runs (comparison)."""

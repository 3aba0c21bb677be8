"""A simulated world of single runs: every run, lane and machine on a virtual clock."""

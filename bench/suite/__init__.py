"""``make bench``: rows that measure the gateway's own code beside a peer and a limit, in turn, in one run."""

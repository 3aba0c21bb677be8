"""VMs: launched, terminated, paid for, and owned by one gateway at a time."""

"""Simulated worlds: the production Scheduler, Profiler and Exchange on a virtual clock."""

"""Simulated worlds: the production Scheduler, Profiler, Router, RunBook and Reorderer on a clock of their own."""

"""Simulated engines: CEPSim's query model in small ticks, and a server of single runs; pure, time is an argument."""

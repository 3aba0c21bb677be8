"""Simulated engines: CEPSim's query model in small ticks, and a server of single runs. Pure: time is an argument."""

"""CEPSim's graphs as a tool: a YAML file of queries and machines, simulated tick by tick."""

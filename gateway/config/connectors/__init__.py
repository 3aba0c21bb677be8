"""The config's sections about sources, sinks and their servers."""

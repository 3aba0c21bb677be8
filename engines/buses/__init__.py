"""Lasting bus delays by area (elastic CEP by prediction, section IV): readers of traces, a generator, and the query."""

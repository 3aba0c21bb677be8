"""Traces of sampled runs, sent to a collector of OpenTelemetry."""

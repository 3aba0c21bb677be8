"""The sections of the config about sources, sinks and what they talk to."""

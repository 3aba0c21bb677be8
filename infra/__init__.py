"""The outside world: links and their frames, payload, clouds, certificates, clock."""

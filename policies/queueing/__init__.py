"""How many instances keep a buffer limit, after Mayer et al., Meeting Predictable Buffer Limits, section V."""

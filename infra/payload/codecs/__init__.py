"""The codecs of a field: how each packs, what it costs, and how one is chosen."""

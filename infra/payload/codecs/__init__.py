"""The codecs of a field: how each packs, what it costs, and which one is used."""

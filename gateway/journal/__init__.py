"""The write-ahead log of sources that cannot replay: events are on disk before they are acknowledged."""

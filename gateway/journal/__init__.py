"""The write-ahead log of sources that cannot be asked again: what was received is on the disk before it is answered."""

"""Plays the modes of the demo one after the other, and says how far it is."""

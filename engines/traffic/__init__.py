"""Overtaking on a no-passing stretch, with made-up vehicles (Mayer et al., section VI-B)."""

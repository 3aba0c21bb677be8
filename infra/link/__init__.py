"""The link between a gateway and an engine host: frames, trust, both ends, credit, and an emulated WAN.

Frames, credit and certificates do no I/O. ``client`` is the gateway's end, ``server`` the host's. Both use ``channel``,
which is one TLS connection that carries frames.
"""

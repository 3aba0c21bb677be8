"""The live page of a running gateway, at ``/``: its files, and their routes."""

"""Sinks that write parts and a manifest of them: folders and S3."""

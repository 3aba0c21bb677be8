"""Converts JSON lines and blocks of rows to Arrow batches, and reports each bad row."""

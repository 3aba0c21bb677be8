"""From JSON lines and blocks of rows to Arrow batches, with each bad row accounted for."""

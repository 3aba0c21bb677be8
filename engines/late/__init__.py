"""Rows that come later than the watermark allows: which of the rows of a micro-batch they are."""

"""The daemon and its command line: where all parts are put together."""

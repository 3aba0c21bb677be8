"""The daemon and its command line: the package that connects all parts."""

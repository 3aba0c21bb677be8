"""The demo: its load, the independent check of its answers, and its charts."""

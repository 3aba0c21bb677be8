"""The demo: the load it plays, the independent check of its answers, and the pictures it draws."""

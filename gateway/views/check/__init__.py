"""The findings of ``spillway check``, and how they are shown."""

"""What ``spillway check`` finds and shows."""

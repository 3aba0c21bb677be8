"""What machines cost, and the limits of what may be spent."""

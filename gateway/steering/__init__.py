"""What the API can see of a running gateway, and what it can order."""

"""What other programs ask a gateway regularly: whether it lives, whether it is ready, and its metrics."""

"""Follows the rule that pays: all rules run beside each other in a fluid, and their costs decide."""

"""Policies that plan ahead: forecasts, plain rules, and the planners that use them."""

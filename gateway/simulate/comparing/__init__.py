"""Policies, seeds and the optimum beside each other: tables, JSON and a page."""

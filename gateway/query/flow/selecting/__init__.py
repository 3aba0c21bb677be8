"""Puts the events of a query together into selections: a run gets the events of the selections that it closes."""

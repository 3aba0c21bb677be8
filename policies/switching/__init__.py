"""When and how much of a query goes to the cloud: the switching functions, shares, ranking and shedding."""

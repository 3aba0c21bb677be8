"""The parts of ``reproduce_planning``: one module for each group of the paper's figures."""

"""The parts of ``reproduce_state``: one module for each section of docs/results/state.md."""

"""Random worlds: whatever clouds, lanes and queries do, the scheduler keeps its promises."""

from __future__ import annotations

from hypothesis import settings

from tests.policies.scheduler_world import World

World.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestWorld = World.TestCase

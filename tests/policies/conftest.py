"""Property tests here check numbers, not times: on a busy machine an example may take long."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("policies", deadline=None)
settings.load_profile("policies")

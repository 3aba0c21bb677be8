"""What the user writes: the YAML file, its units, its models, and errors that say where and what to do."""

from gateway.config.load import ConfigError, Problem, load
from gateway.config.models import Config, Query

__all__ = ["Config", "ConfigError", "Problem", "Query", "load"]

"""The config file: YAML, units, models, and errors that say where a mistake is and what to do."""

from gateway.config.load import ConfigError, Problem, load
from gateway.config.models import Config, QueryConfig

__all__ = ["Config", "ConfigError", "Problem", "QueryConfig", "load"]

"""Everything that people see: status, money, decisions, reports, logs and the HTTP API."""

"""A query's definition: its code, SQL, schemas, plan and mistakes."""

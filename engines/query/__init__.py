"""What a query is: its code, SQL, schemas and plan, and what is wrong with it."""

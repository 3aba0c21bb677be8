"""The report of a past period: one page with the pictures of the live page, and its data inside it."""

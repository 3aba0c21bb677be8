"""Which lane has which keys of a keyed query, and which keys move when the lanes' loads differ (DLB, key grouping)."""

"""REST, metrics and one plain page: answered from PostgreSQL, so that it never slows a decision."""

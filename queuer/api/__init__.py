"""REST, metrics and the dashboard's files: answered from PostgreSQL, so that it never slows a decision."""

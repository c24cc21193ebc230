"""The `queuer` command, also `kubectl queuer`: one module per group of verbs, loaded when a verb is used."""

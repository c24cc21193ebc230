"""PostgreSQL: the truth for queues, quota, decisions and history. Tables, queries, ledger, outbox, leader lock."""

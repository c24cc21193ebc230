"""The words of Queuer as plain records and pure functions: quantities, queues, quota, workloads, nodes, reasons.

No I/O, no clock and no third-party import lives here, so every other layer may use it.
"""

"""Cuts the jobs of some queues and a window of time out of a job trace; rows stay as they are, in their order.

python bench/data/cut.py philly_jobs.csv.gz 4062780 9333120 7f04ca 2869ce > bench/data/philly_two_queues.csv
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path


def main(source: str, first: str, last: str, *queues: str) -> None:
    """Print the rows of `queues` that were submitted from `first` to `last` (seconds, both included)."""
    with gzip.open(Path(source), "rt", encoding="utf-8", newline="") as text:
        rows = csv.DictReader(text)
        printer = csv.DictWriter(sys.stdout, rows.fieldnames or (), lineterminator="\n")
        printer.writeheader()
        for row in rows:
            if row["queue"] in queues and int(first) <= int(row["submit_s"]) <= int(last):
                printer.writerow(row)


if __name__ == "__main__":
    main(*sys.argv[1:])

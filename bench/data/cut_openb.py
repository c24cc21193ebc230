"""Cuts the nodes with GPUs, and the pods that ask for whole GPUs, out of the openb tables, with the columns named.

python bench/data/cut_openb.py openb_nodes.csv.gz gpus node gpus cpus mem_gib gpu_model > bench/data/openb_nodes.csv
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path


def main(source: str, gpus: str, *columns: str) -> None:
    """Print these columns of the rows whose column `gpus` is 1 or more, in their order."""
    with gzip.open(Path(source), "rt", encoding="utf-8", newline="") as text:
        printer = csv.writer(sys.stdout, lineterminator="\n")
        printer.writerow(columns)
        for row in csv.DictReader(text):
            if float(row[gpus]) >= 1:
                printer.writerow([row[column] for column in columns])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The run kills the controller at every failpoint, each time beside a fault of the cluster, and checks what
is left. Then storms hit its watches and its database.

    python -m tests.chaos --seeds 20 [--storms N] [--first SEED] [--points decided committed]

A line for each point, fault and seed, and for each storm; one JSON line at the end. A storm takes twelve minutes.
`QUEUER_TEST_CLUSTER=DIR` uses a kept cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import arguments
from queuer.controller.failpoints import Point
from tests.chaos.storms import FULL, blow
from tests.chaos.story import play
from tests.e2e.conftest import kubernetes


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m tests.chaos", description="A crash at every failpoint.")
    options.add_argument(
        "--seeds",
        type=arguments.whole(0, 1_000),
        default=2,
        help="stories of crashes to play (default: %(default)s)",
    )
    options.add_argument(
        "--storms",
        type=arguments.whole(0, 1_000),
        default=1,
        help="storms on watches and database to play (default: %(default)s)",
    )
    options.add_argument("--first", type=arguments.seed, default=1, help="seed of the first of both")
    options.add_argument(
        "--points", type=Point, nargs="+", default=list(Point), help="only these", metavar="POINT"
    )
    return options


def main() -> int:
    """1 where anything was wrong."""
    wanted = parser().parse_args()
    began, counts = time.monotonic(), Counter[str]()
    with TemporaryDirectory(prefix="queuer-chaos-") as home, kubernetes(Path(home)) as cluster:
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            for told in play(cluster, seed=seed, points=wanted.points):
                sys.stdout.write(f"{told}\n")
                sys.stdout.flush()
                counts["rounds"] += told.point is not None
                counts["failures"] += bool(told.wrong)
        for seed in range(wanted.first, wanted.first + wanted.storms):
            storm = blow(cluster, seed=seed, scale=FULL, drift=True)
            sys.stdout.write(f"{storm}\n")
            sys.stdout.flush()
            counts["failures"] += bool(storm.wrong)
    report = {"seeds": wanted.seeds, "points": len(wanted.points), "rounds": counts["rounds"]}
    report |= {
        "storms": wanted.storms,
        "failures": counts["failures"],
        "seconds": round(time.monotonic() - began, 1),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if counts["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

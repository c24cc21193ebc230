"""Seconds to a ready local cluster of 160 nodes, part by part: first start, and start after `down`."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from queuer.local import stack
from queuer.local.cluster import ALL_PARTS, Cluster
from queuer.local.progress import Reporter


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    made.add_argument("--part", choices=ALL_PARTS, action="append", help="start only these (default: all)")
    return made


def main() -> None:
    """Print one line per start."""
    parts = parser().parse_args().part
    home = Path(tempfile.mkdtemp(prefix="queuer-bench-"))
    home.chmod(0o755)  # PostgreSQL's account must enter
    options = stack.Options(dir=home / "local", parts=tuple(parts or ALL_PARTS))
    try:
        for start in ("first start", "start after down"):
            clock = stack.Clock()
            cluster = stack.up(options, reporter=Reporter(), clock=clock)
            steps = [f"{name} {seconds:.2f} s" for name, seconds in clock.seconds.items()]
            print(f"{start}: {', '.join(steps)}")
            stack.down(cluster)
    finally:
        if (options.dir / "state.json").exists():
            stack.reset(Cluster.load(options.dir))
        shutil.rmtree(home)


if __name__ == "__main__":
    main()

"""`python -m tools.policies`: write the files of the chart that differ, and name them."""

from __future__ import annotations

import sys

from tools.policies.render import FOLDER, made


def main() -> None:
    """Write the chart's policies and rights."""
    for name, text in made().items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{name} written\n")


if __name__ == "__main__":
    main()

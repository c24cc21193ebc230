"""`python -m tools.reference`: write the pages that differ, and name them."""

from __future__ import annotations

import sys

from tools.reference.pages import FOLDER, PAGES


def main() -> None:
    """Write docs/reference/."""
    for name, made in PAGES.items():
        path, text = FOLDER / name, made()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"docs/reference/{name} written\n")


if __name__ == "__main__":
    main()

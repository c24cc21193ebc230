"""Queuer of the next version, as far as the database goes: it knows one migration more. `python -m tests.newer VERB`.

`QUEUER_TEST_MIGRATIONS` is the folder of its migrations, as `write` makes it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from queuer.cli import main
from queuer.store import migrate

VARIABLE = "QUEUER_TEST_MIGRATIONS"
REVISION = "9000"


def write(folder: Path) -> Path:
    """Our migrations, and one more that adds a column to the largest table."""
    shutil.copytree(migrate.scripts(), folder)
    (folder / "versions" / "9000_column.py").write_text(
        f'revision = "{REVISION}"\n'
        f'down_revision = "{migrate.head()}"\n'
        "from alembic import op\n"
        'def upgrade() -> None: op.execute("ALTER TABLE event ADD COLUMN more text")\n'
        'def downgrade() -> None: op.execute("ALTER TABLE event DROP COLUMN more")\n'
    )
    return folder


def run() -> None:
    """The command line of that version."""
    folder = Path(os.environ[VARIABLE])
    migrate.scripts = lambda: folder
    main.run()


if __name__ == "__main__":
    run()

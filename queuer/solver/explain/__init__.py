"""Why a gang waits, in numbers, and what would admit it."""

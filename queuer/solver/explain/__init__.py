"""Why a gang waits: `reasons` in the cycle, `detail` and `advice` when somebody asks."""

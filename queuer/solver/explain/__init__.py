"""Why a gang waits: one reason each in the cycle; everything beyond it when somebody asks, on the stored cycle."""

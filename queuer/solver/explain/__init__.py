"""Why a gang waits, as the cycle tells it; `solver.job_detail` and `solver.advice` tell the rest when somebody asks."""

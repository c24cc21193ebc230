"""Makes the Grafana dashboards of the chart: `python -m tools.dashboards`."""

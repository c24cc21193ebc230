"""Makes the chart's admission policies and rights from templates and the rows of `queuer.kube.kinds`."""

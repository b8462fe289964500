"""Parts of the benchmark of what comes before a model."""

"""The command `estimator-runtime`, with one module for each subcommand."""

"""Entry point of `python -m estimator_runtime`: the command `estimator-runtime`."""

if __name__ == "__main__":
    import sys

    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        # Python put the current folder there. Up to here runpy and this package have
        # searched it for their imports; from now on nothing does.
        sys.path[0] = f"{__file__.removesuffix('__main__.py')}compat/inject/startup"

    from estimator_runtime.cli.main import main

    sys.exit(main())

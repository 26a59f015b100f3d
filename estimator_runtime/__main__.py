"""`python -m estimator_runtime`: the same as the command `estimator-runtime`."""

if __name__ == "__main__":
    import sys

    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        # Python put the current folder there. By now runpy and the package have
        # searched it for what they import; nothing else does.
        sys.path[0] = f"{__file__.removesuffix('__main__.py')}startup"

    from estimator_runtime.cli import main

    sys.exit(main())

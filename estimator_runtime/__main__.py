"""Entry point of `python -m estimator_runtime`: the command `estimator-runtime`."""

if __name__ == "__main__":
    import os
    import sys

    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        # Python put the current folder there, unless that has been deleted. Up to here
        # runpy and this package have searched it for their imports; from now on nothing
        # does.
        count = 1
        try:
            os.getcwd()
        except FileNotFoundError:
            count = 0
        startup = f"{__file__.removesuffix('__main__.py')}patching/injection/startup"
        sys.path[:count] = [startup]

    from estimator_runtime.cli.main import main

    sys.exit(main())

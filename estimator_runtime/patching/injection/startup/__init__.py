"""Modules that Python imports at start-up, in children and if activation is on.

They are not imported as part of this package: their folder, or a copy of one of them,
is on sys.path. They depend on nothing else in the package, and take almost no time.
"""

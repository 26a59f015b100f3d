"""What python imports as it starts, in children and where activation is on.

The modules here are not imported as part of this package: their folder, or a copy of
one of them, is on the path. They stand alone and cost next to nothing.
"""

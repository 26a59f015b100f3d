"""Loading of the runtime in other processes: children, helpers, and every Python."""

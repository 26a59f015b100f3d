"""How long whole programs take, from the command to the exit."""

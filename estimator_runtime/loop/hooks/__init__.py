"""Hooks of a session: what they may offer the step loop, and which steps they see."""

"""Patches that change the behaviour of Estimators, and the reasons for them."""

"""Nests: loops over parts of axes that compute one definition's tile at a time, and how to change them."""

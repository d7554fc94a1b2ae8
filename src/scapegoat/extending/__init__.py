"""Code of a user's own: finding it, telling what it is, explaining its errors."""

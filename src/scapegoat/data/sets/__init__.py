"""Data sets, one file each: those with a public home, the generated one, and what users bring."""

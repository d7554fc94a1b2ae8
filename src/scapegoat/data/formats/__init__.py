"""What data sets are read from, without trust in the files."""

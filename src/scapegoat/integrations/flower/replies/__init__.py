"""What arrives from nodes: read without trust, named, put in order, waited for."""

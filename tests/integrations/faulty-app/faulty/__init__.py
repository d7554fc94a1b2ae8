"""An app whose nodes misbehave."""

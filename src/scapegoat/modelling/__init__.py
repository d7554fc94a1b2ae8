"""What models share: one flat parameter vector, checks of a module, its seeding, what a user's own model is."""

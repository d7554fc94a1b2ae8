import os

from hypothesis import settings

# A failure in CI must be one that the next run shows again; at home, every run looks somewhere else.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

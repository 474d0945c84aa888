"""The models: one file each, the stateless model on top and its estimator below."""

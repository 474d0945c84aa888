"""The mathematics of the models, in one file for each, separate from the estimators."""

"""The mathematics of the models, one file each, without scikit-learn's estimators."""

"""scikit-learn's side of every model: parameters, validation, fitted attributes, predictions."""

"""The suite of real instances by which the default settings of the estimators are decided."""

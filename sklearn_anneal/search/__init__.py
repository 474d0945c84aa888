"""How a fit looks for a better optimum: restarts, a race of them, and moves from the best one.

Nothing here knows a model by name. A move asks the model for what it needs (``Searchable``).
"""

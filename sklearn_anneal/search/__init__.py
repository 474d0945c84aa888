"""How a fit looks for a better optimum: restarts, a race of them, and moves from the best one.

Nothing here depends on a certain model. Moves use the interface ``Searchable`` of models.
"""

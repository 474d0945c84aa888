"""Components: the distributions of an observation given its state, for mixtures and chains."""

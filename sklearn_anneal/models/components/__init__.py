"""Components: what an observation looks like given its state, for mixtures and Markov chains."""

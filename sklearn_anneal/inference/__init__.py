"""The loop of inference and its tools. Nothing here depends on a certain model or method."""

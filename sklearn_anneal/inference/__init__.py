"""The loop of inference and what it stands on. Nothing here knows a model or a method."""

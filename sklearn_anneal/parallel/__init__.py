"""Workers, threads, and the memory and the limits of threads. They know neither data nor models."""

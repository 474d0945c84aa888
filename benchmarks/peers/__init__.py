"""Whole fits of ours and of other libraries, by what they predict and how long they take."""

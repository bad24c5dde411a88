"""Claims of warm members: adoption, assignment, and the classes of Pods that members fit."""

"""Results as notebooks and terminals show them: HTML, text and progress bars. Values in, text out."""

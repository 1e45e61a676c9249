"""Tables as their owners keep them: columns with names and types, and the way to the rows that a model saw and back."""

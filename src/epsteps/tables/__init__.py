"""Tables: a declared schema, the model that is fitted to one, and its report."""

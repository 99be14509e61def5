"""From values to statements: where each lies, which instructions make it, how they are written."""

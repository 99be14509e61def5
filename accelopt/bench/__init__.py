"""A folder and tools for whoever makes one kernel faster: a coding agent over MCP, our own, the rules."""

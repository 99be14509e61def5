"""PTX as structure and work: statements, flow, regions, bytes and operations a block. No time model."""

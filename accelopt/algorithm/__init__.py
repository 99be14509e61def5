"""What a kernel computes, apart from how: axes, indices, expressions, normal forms, their meaning."""

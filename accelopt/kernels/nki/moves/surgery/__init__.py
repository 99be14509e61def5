"""How a kernel's text is changed: loops split and joined, values hoisted, names, tiles widened."""

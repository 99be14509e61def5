"""What a solution's source must be like, before anything of it runs."""

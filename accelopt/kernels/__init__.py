"""Kernel languages: what the loop needs of each, and a folder for every one."""

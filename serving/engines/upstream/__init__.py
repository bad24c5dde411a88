"""Engines that are HTTP servers in processes of their own."""

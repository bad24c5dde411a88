"""Tests of the engines that are servers of their own."""

"""Traces played through scaling policies on a virtual clock: what each request waits, and what is paid for it."""

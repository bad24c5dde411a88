"""Network code that all packages share: clients, sockets, SSRF policy and data formats."""

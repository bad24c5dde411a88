"""Storage: download and verify the files of a model from a storage URI.

All stores are read with one HTTP client of our own (`transfer.client`), not with fsspec and its libraries. Those open
connections themselves, so the address of a connection cannot be checked, and their downloads can be neither bounded nor
resumed. Provider libraries are used only for work without connections: botocore signs URLs, and google-auth signs the
request for a token.
"""
